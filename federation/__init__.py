"""What every party of a federation must agree on: errors, configuration, wire format, models, data and metrics.

A module belongs here only if two packages need it and must agree on it; it imports none of ours. Read next:
`federation.config` (what can be asked for), then `federation.records` (what travels).
"""
