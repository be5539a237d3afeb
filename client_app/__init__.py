"""What a hospital runs: checks on what it is asked, training, evaluation, and a boundary nothing private crosses.

Read next: `client_app.main`, where Flower enters, then `client_app.training`.
"""
