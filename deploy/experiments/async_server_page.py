"""The server's sections of the results page."""

from __future__ import annotations

from deploy.experiments.async_chapter import Results
from deploy.experiments.cells import Result


def server_section(results: Results) -> list[str]:
    """Return the tables of speed, memory and kills; nothing of what was not measured."""
    speed = [results[name] for name in ("server-apply", "server-flower") if name in results]
    memory = {name: result for name, result in results.items() if name.startswith("server-memory-")}
    kills = {name: result for name, result in results.items() if name.startswith("server-kills-")}
    sections = [*_speed_tables(speed), *_memory_table(memory), *_kill_table(kills)]
    return ["## The server by itself", *sections] if sections else []


def _speed_tables(speed: list[Result]) -> list[str]:
    if not speed:
        return []
    rows = ["| updates of one version | baseline, ms | ours, ms | baseline / ours |", "|---|---|---|---|"]
    for result in speed:
        rows += [
            f"| {result['baseline']}: {name} | {case['theirs_ms']:.2f} | {case['ours_ms']:.2f} | {case['ratio']:.2f} |"
            for name, case in _speed_cases(result)
        ]
    return [
        "Time to make updates part of the model, medians of turns: processor time of one thread, but where it says all "
        "cores the time on a clock. cnn has 1.67 million parameters, resnet18 11.2 million.",
        "\n".join(rows),
    ]


def _speed_cases(result: Result) -> list[tuple[str, Result]]:
    apart = [(f"{name}, memory of its own", case) for name, case in result.get("apart", {}).items()]
    return [*result["cases"].items(), *apart]


def _memory_table(memory: Results) -> list[str]:
    if not memory:
        return []
    rows = [
        "| run | hospitals | replies | peak, models | without mapped files | process, MiB |",
        "|---|---|---|---|---|---|",
    ]
    for name, result in memory.items():
        label = name.removeprefix("server-memory-")
        cases = [*((case, "") for case in result["cases"]), (result["together"], ", all at once")]
        rows += [
            f"| {label} | {case['hospitals']}{remark} | {case['replies']} | {case['peak_models']:.2f} | "
            f"{case['private_models']:.2f} | {case['peak_mib']:.0f} |"
            for case, remark in cases
        ]
    return [
        "Peak memory of a whole run above the process without a model, in models. Replies come one at a time, but for "
        "the last rows of each. The allocator gives large blocks back at once, so that what is counted is in use.",
        "\n".join(rows),
    ]


def _kill_table(kills: Results) -> list[str]:
    if not kills:
        return []
    rows = [
        "| server | kills | at random | while resuming | points | lost | twice | in hand | updates in models |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, toll in kills.items():
        rows.append(
            f"| {name.removeprefix('server-kills-')} | {toll['kills']} | {toll['at_random']} | "
            f"{toll['while_resuming']} | {len(toll['points'])} | {toll['lost']} | {toll['doubled']} | "
            f"{toll['dropped']} | {toll['applied']} |"
        )
    return [
        "Servers killed by SIGKILL, resumed until their runs were over. `virtual`: hospitals begin again with the "
        "server, and every final model and summary is that of the run that was never killed, bit by bit. `deployed`: "
        "updates wait on the disk, and every final model is the sum of its surviving history, computed apart. In hand: "
        "accepted, and lost with the process before anything was durable.",
        "\n".join(rows),
    ]
