"""The work plane: who does it. Queues, workers, functions."""
