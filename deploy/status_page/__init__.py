"""`aegis status`: how a hospital stands, for its own people and its own monitoring, and its stop switch.

Everything is read from files on the hospital's own volumes, no lock is taken, and nothing but the stop switch changes
anything. What is shown may be seen by more people than the log may: no exception text of a task, no traceback, nothing
that was derived from images before noise. Read next: `observer`, which looks; `view`, which says; `application`, which
answers.
"""
