"""Text-to-image models of diffusers, Stable Diffusion 2.0 by default, from weights that lie on this machine."""
