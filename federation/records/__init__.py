"""The wire format: what the server asks (`tasks`), what a hospital answers (`answers`), how tensors travel (`tensors`).

Every message names the protocol version, so that parties of different releases refuse each other instead of guessing.
"""
