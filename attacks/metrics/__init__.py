"""How well an attack did, measured so that no denominator, pairing or threshold flatters it or the defence.

Read `quality` for PSNR and SSIM, `pairing` for which candidate belongs to which real image, `nulls` for what a guess
without any update reaches, and `recovery` for the report that puts them together.
"""
