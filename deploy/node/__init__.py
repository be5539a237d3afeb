"""What runs in a hospital's container: a supervisor, Flower's SuperNode below it, and the watchdog that minds it.

Read next: `supervisor`, which starts everything; `state`, what it tells the status page and the doctor.
"""
