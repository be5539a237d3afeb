"""Whether synthetic images repeat the hospital's own: copies, closeness, membership. Read next: `memorization`."""
