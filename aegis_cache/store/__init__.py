"""The cache of synthetic images on disk: what training reads. No generator, and nothing that one needs, is imported."""
