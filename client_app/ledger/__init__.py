"""The hospital's privacy ledger: one append-only SQLite file, reserved before a release and committed before it leaves.

Read next: `client_app.ledger.ledger` (what a client calls), `rows` (what is written and how it is chained), `anchor`
(what makes an old backup noticeable), `balance` (what the rows add up to), `verification` (what is checked).
"""

from client_app.ledger.ledger import Ledger
from client_app.ledger.release import ReleaseRequest, Reservation, Spend

__all__ = ["Ledger", "ReleaseRequest", "Reservation", "Spend"]
