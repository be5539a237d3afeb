"""Noise and sampling for privacy mechanisms: the interface is `source`; read `cryptographic` next."""
