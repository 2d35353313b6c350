"""Running it: failure taxonomy, triage, replay, tracing, metrics."""
