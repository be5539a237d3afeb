"""The synthetic image cache of Aegis masking: generation, acceptance and audit offline, a read-only store for training.

Read next: `aegis_cache.build`, the way from a generator to a published cache. `client_app` sees `store` only.
"""
