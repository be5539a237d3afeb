"""The model guard: before any training, a hospital refuses a model that looks crafted to read its images.

The architecture is pinned elsewhere: names, shapes and dtypes are those of the configured model. What is left to a
malicious server are the values, and those that make gradients hold single images have a look of their own, which
initialization and training do not give. Every check is a small function of its own; `inspection` runs them all.

A heuristic, never differential privacy: docs/adr/0017-model-guard.md says what it was measured on and what it misses.
"""
