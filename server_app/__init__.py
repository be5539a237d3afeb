"""What the coordinator runs: the event-driven engine, its aggregation rules, checkpoints and reports.

Read next: `server_app.main`, where Flower enters, then `server_app.engine`.
"""
