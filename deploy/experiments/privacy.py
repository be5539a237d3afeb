"""`aegis experiment privacy`: do the accounts hold, does the ledger survive, and what does epsilon cost?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from deploy.experiments.cells import Cell, Result
from deploy.experiments.claims import Claim, claims_as_json, claims_as_table
from deploy.experiments.privacy_accounting import accounting_cells, accounting_claims
from deploy.experiments.privacy_adult import adult_cells, adult_claims
from deploy.experiments.privacy_adult_page import render_adult
from deploy.experiments.privacy_dp_sgd import dp_sgd_cells, dp_sgd_claims
from deploy.experiments.privacy_ledger import ledger_cells, ledger_claims
from deploy.experiments.privacy_noise import noise_cells, noise_claims
from deploy.experiments.privacy_pneumonia import pneumonia_cells, pneumonia_claims, pneumonia_section
from federation.durable import write_durably

COMMAND = "aegis experiment privacy"


def privacy_cells(parts: Sequence[str], *, data_root: str) -> list[Cell]:
    """Return the cells of the named `parts`.

    Args:
        parts: of `PRIVACY_PARTS`.
        data_root: folder with the subfolders `medmnist` and `adult`.
    """
    cells: list[Cell] = []
    cells += accounting_cells() if "accounting" in parts else []
    cells += noise_cells() if "noise" in parts else []
    cells += ledger_cells() if "ledger" in parts else []
    cells += dp_sgd_cells() if "dp-sgd" in parts else []
    cells += adult_cells(data_root) if "adult" in parts else []
    cells += pneumonia_cells(data_root) if "pneumonia" in parts else []
    return cells


def privacy_claims(results: dict[str, Result]) -> list[Claim]:
    """Return every claim of the experiment; a claim whose cells are missing has no value."""
    return [
        *ledger_claims(results),
        *accounting_claims(results),
        *noise_claims(results),
        *dp_sgd_claims(results),
        *adult_claims(results),
        *pneumonia_claims(results),
    ]


def write_privacy_results(results: dict[str, Result], made: dict[str, dict[str, str]], folder: Path) -> None:
    """Write `02-privacy.json` and `02-privacy.md` into `folder`.

    Args:
        results: finished cells by name.
        made: when, where and by which code each was made.
        folder: of the results pages.
    """
    claims = privacy_claims(results)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {name: {"made": made[name], **result} for name, result in results.items()}
    content = {"command": COMMAND, "claims": claims_as_json(claims, made), "cells": cells}
    write_durably(folder / "02-privacy.json", (json.dumps(content, indent=1) + "\n").encode())
    machines = "; ".join(sorted({item["machine"] for item in made.values()}))
    sections = [
        "# 02 Privacy",
        f"Written by `{COMMAND}`; do not edit. Machine: {machines}.",
        claims_as_table(claims),
        "Epsilon is claimed for one record, add/remove, at each participant or hospital for its own data, unless said "
        "otherwise.",
        *render_adult(results),
        *pneumonia_section(results),
    ]
    write_durably(folder / "02-privacy.md", ("\n\n".join(part for part in sections if part) + "\n").encode())
