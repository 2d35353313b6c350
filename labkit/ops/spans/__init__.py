"""Spans: how each hop makes them, where they go, and how they are read back; see :mod:`labkit.ops.tracing`."""
