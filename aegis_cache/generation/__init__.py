"""Generators of synthetic images, all behind one interface; the only place that may import diffusers. Offline only."""
