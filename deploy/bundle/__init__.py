"""Offline bundles: everything a hospital without a network needs, in one signed archive.

Read next: `contents`, what is in one; `archive`, its form; `command`, how it is made and checked.
"""
