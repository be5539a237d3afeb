"""Who belongs to a consortium: its certificate authority, the server's certificate, and a key and a kit per hospital.

Read next: `kit`, what a hospital is handed; `command`, how a coordinator makes it.
"""
