"""Flower's SuperNode, with a note of every answer of the server beside it: `python -m deploy.node.supernode FILE ...`.

The first argument is the file that `contact` keeps; everything behind it is Flower's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flwr.supernode.cli.flower_supernode import flower_supernode

from deploy.node.contact import note_contacts


def main() -> None:
    """Run the SuperNode until it is told to stop."""
    note_contacts(Path(sys.argv.pop(1)))
    flower_supernode()


if __name__ == "__main__":
    main()
