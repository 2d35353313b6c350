"""The control plane: what happens next. Envelope, bus, state machines, callbacks."""
