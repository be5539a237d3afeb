"""The server's cells and claims: the worst of what was measured is claimed, nothing measured is never met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deploy.experiments.async_server import (
    APPLY,
    FLOWER,
    KILLS,
    MODELS,
    RATE,
    RULES,
    SERVER,
    memory_cell_name,
    server_cells,
    server_claims,
)
from deploy.experiments.async_server_page import server_section
from deploy.experiments.cells import Result
from deploy.experiments.parts import SERVER_PARTS

IDS = [
    "apply_axpy_ratio", "apply_vs_flower_ratio", "peak_models", "engine_updates_per_s", "server_kills", "lost_updates",
    "doubled_updates", "resume_s",
]  # fmt: skip
MEMORY = [memory_cell_name(model, rule) for model in MODELS for rule in RULES]


def speeds(baseline: str, *ratios: float) -> Result:
    cases = {
        f"case {ratio}": {"ratio": ratio, "theirs_ms": 10 * ratio, "ours_ms": 10.0, "ratios": [ratio], "once_ms": 2.5}
        for ratio in ratios
    }
    return {"baseline": baseline, "cases": cases, "apart": cases, "worst": min(ratios)}


def peak(hospitals: int, models: float) -> dict[str, float]:
    return {
        "hospitals": hospitals, "replies": hospitals, "peak_models": models, "private_models": models - 0.5,
        "peak_mib": 600.0,
    }  # fmt: skip


def toll(**changes: Any) -> Result:
    return {
        "kills": 110, "at_random": 20, "while_resuming": 30, "points": ["apply before"], "runs": 80, "lost": 0,
        "doubled": 0, "dropped": 3, "applied": 900, "waiting": 2, "faults": [], "resume_s": [0.1, 0.4, 0.2],
        "start_s": [], **changes,
    }  # fmt: skip


def everything() -> dict[str, Result]:
    run = {"server_per_s": 40.0, "all_per_s": 15.0, "writes_per_s": 90.0}
    slow = {**run, "server_per_s": 30.5}
    return {
        APPLY: speeds("torch axpy", 0.95, 0.85),
        FLOWER: speeds("Flower", 3.5, 3.1),
        **{name: {"cases": [peak(8, 2.0), peak(100, 2.1)], "together": peak(8, 2.2)} for name in MEMORY},
        RATE: {"optimizers": {"average": [run, run], "momentum": [slow, slow]}},
        **{name: toll() for name in KILLS},
    }


def values(results: dict[str, Result]) -> dict[str, float | None]:
    return {item.id: item.value for item in server_claims(results)}


def test_claims_without_cells_have_no_value() -> None:
    assert [(item.id, item.value, item.met) for item in server_claims({})] == [(name, None, False) for name in IDS]


def test_claims_take_the_worst_of_what_was_measured() -> None:
    claims = server_claims(everything())

    assert [item.value for item in claims] == [0.85, 3.1, 2.1, 40.0, 220, 0, 0, 0.4]
    assert all(item.met for item in claims)


def test_memory_of_one_rule_more_counts() -> None:
    results = everything()
    results[MEMORY[-1]]["cases"][0]["peak_models"] = 2.6

    assert values(results)["peak_models"] == 2.6


def test_memory_is_claimed_only_when_every_rule_and_model_was_measured() -> None:
    results = everything()
    del results[MEMORY[2]]

    assert values(results)["peak_models"] is None


def test_kills_are_claimed_only_when_both_ways_of_resuming_were_measured() -> None:
    results = everything()
    del results[next(iter(KILLS))]

    assert {values(results)[name] for name in IDS[4:]} == {None}


def test_updates_lost_or_doubled_in_either_way_of_resuming_are_not_met() -> None:
    for name in KILLS:
        claims = {item.id: item for item in server_claims({**everything(), name: toll(lost=1, doubled=2)})}

        assert (claims["lost_updates"].value, claims["doubled_updates"].value) == (1, 2)
        assert not claims["lost_updates"].met
        assert not claims["doubled_updates"].met


def test_every_part_has_cells_and_every_cell_that_measures_time_runs_alone() -> None:
    cells = {part: server_cells([part], "", Path()) for part in SERVER_PARTS}

    assert all(cells.values())
    assert all(cell.alone for part in ("apply", "rate", "kills") for cell in cells[part])
    assert sum(cell.settings["kills"] for cell in cells["kills"]) >= 200
    assert [cell.name for cell in cells["memory"]] == MEMORY
    assert {tuple(cell.settings["hospitals"]) for cell in cells["memory"]} == {(8, 32, 100)}


def test_parts_of_other_chapters_have_no_cells_here() -> None:
    assert SERVER.cells(["pneumonia", "sweep"], "", Path()) == []


def test_page_has_a_table_for_each_kind_of_measurement_and_nothing_for_none() -> None:
    text = "\n".join(server_section(everything()))

    assert server_section({}) == []
    assert "| Flower: case 3.1 | 31.00 | 10.00 | 3.10 |" in text
    assert "| resnet18-fedavg | 8, all at once | 8 | 2.20 | 1.70 | 600 |" in text
    assert "| virtual | 110 | 20 | 30 | 1 | 0 | 0 | 3 | 900 |" in text


def test_page_shows_what_was_measured_alone() -> None:
    sections = server_section({APPLY: speeds("torch axpy", 0.9)})

    assert sections[0].startswith("## ")
    assert len(sections) == 3
