"""The synthetic image cache of Aegis masking: generation, acceptance and audit offline, a read-only store for training.

No code yet. `store` (the read side, no diffusers) will be imported by `client_app`; the offline side by `deploy` only.
"""
