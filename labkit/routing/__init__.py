"""The model edge: which model answers. Router, gate, provider."""
