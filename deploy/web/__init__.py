"""What the pages of hospital and coordinator have in common: headers, the frame of a page, its style, metrics.

A page is made on the machine that shows it, loads nothing from anywhere else and runs no script. Read next:
`deploy.web.application`, which puts the parts together; `templates`, which a page renders its own with.
"""
