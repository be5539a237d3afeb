"""Frozen feature extractors: what images are compared in. Read next: `extractor`."""
