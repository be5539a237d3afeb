"""What a coordinator sees of the consortium: who is connected, how the newest run goes, and what needs a hand.

Read-only: it reads the consortium's folder and the folders of runs, asks the SuperLink who is connected, and changes
nothing. Read next: `overview`, everything that is known at one moment; `page`, how it is shown.
"""
