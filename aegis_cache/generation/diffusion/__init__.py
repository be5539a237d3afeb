"""A small class-conditional diffusion model that a hospital can train on two CPU cores in half an hour."""
