"""On paper: arithmetic and simulation with an injected clock. Imports nothing of AWS."""
