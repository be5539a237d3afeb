"""The hospital's privacy ledger: one append-only SQLite file, reserved before a release and committed after."""
