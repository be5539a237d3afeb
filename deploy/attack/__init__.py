"""`aegis attack`: the malicious server, played against recorded updates or in simulation.

`command` has the subcommands, one module each does the work: `listing`, `inspection`, `simulation`, `recording` and
`merging`. They are imported when they are called, so that `aegis` starts without them.
"""
