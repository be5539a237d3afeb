"""Recorded updates as an attacker reads them: from a run's `updates/` or from a hospital's own outbox."""

from attacks.records.reading import RecordedUpdate, read_records

__all__ = ["RecordedUpdate", "read_records"]
