"""`aegis cache`: synthetic images for masking, built, checked and audited inside the hospital."""
