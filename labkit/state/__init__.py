"""The state plane: what is remembered. Claim check, idempotency, sagas, checkpoints."""
