"""DP-SGD at a hospital: per-sample clipping and noise through Opacus, with our sampling and our noise."""
