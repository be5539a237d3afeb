"""The chapters of the page on deployment."""

from __future__ import annotations

from deploy.experiments.cells import Result
from deploy.experiments.deployment_first_update import COMMANDS

Results = dict[str, Result]
_FIRST = {"first-update": "straight", "first-update-proxy": "through an HTTP CONNECT proxy"}
_AIMED = "the way out with the edge for a proxy"


def deployment_sections(results: Results) -> list[str]:
    """Return the chapters that there are finished cells for."""
    return [
        *_first_update(results),
        *_faults(results.get("faults")),
        *_security(results.get("security")),
        *_footprint(results.get("footprint")),
    ]


def _first_update(results: Results) -> list[str]:
    rows = ["| way out | minutes | commands | contacted |", "|---|---|---|---|"]
    for name, way in _FIRST.items():
        if name in results:
            found = results[name]
            rows.append(f"| {way} | {found['minutes']:.2f} | {found['commands']} | {', '.join(found['contacted'])} |")
    if len(rows) == 2:
        return []
    typed = "\n".join(COMMANDS)
    failed = sorted({check for name in _FIRST if name in results for check in results[name]["doctor-failed"]})
    return [
        "## From a kit to the first update",
        "A hospital joins two others whose run goes on. Its administrator edits `site.toml` and `.env` and types:",
        f"```bash\n{typed}\n```",
        "Every packet that leaves the hospital's network for elsewhere is dropped, and seen on its bridge. The "
        "server's certificate is the consortium's own authority's. Checks of the doctor that failed when it was asked: "
        f"{', '.join(failed) or 'none'}.",
        "\n".join(rows),
    ]


def _faults(found: Result | None) -> list[str]:
    if found is None:
        return []
    rows = ["| fault | survived | versions | minutes | seen |", "|---|---|---|---|---|"]
    for item in found["faults"]:
        before, after = item["versions"]
        told = " ".join(str(item["told"]).replace("|", "/").split())
        rows.append(
            f"| {item['name']} | {'yes' if item['survived'] else 'no'} | {before} to {after} | {item['minutes']:.1f} "
            f"| {told} |"
        )
    sound = found["contradictions"] or "none"
    return [
        "## Faults",
        "One run of three hospitals (asynchronous, DP-SGD, masking, chest X-rays) through all of them. After each, "
        "versions have no gap, no update is in the model twice, every ledger is sound, and no update is in the model "
        "that its hospital has not booked. What was booked and lost on the way stays spent.",
        "\n".join(rows),
        f"At the end: {found['status']}, version {found['version']}, {found['updates']} updates counted and "
        f"{found['in-history']} in the history of the model; contradictions: {sound}.",
    ]


def _security(found: Result | None) -> list[str]:
    if found is None:
        return []
    tried = [f"| {name} | {came or 'refused'} |" for name, came in found["closed"].items()]
    fuzzed = found["fuzzed"]
    strangers, registered = (
        ", ".join(f"{count} times {status}" for status, count in sorted(fuzzed[who].items()))
        for who in ("statuses", "registered")
    )
    return [
        "## Who gets in",
        "\n".join(["| tried | came of it |", "|---|---|", *tried, f"| a revoked key | {found['revoked']} |"]),
        f"{fuzzed['sent']} malformed or unauthorized requests through the edge, of which {fuzzed['answered']} were "
        f"answered and {fuzzed['refused_by_superlink']} refused by the SuperLink itself: of strangers {strangers} (0: "
        f"no answer), let in: {fuzzed['let_in'] or 'none'}; malformed ones that a registered key had signed "
        f"{registered}. Tables of the SuperLink's database whose number of rows, nodes, runs, tasks or files changed: "
        f"{found['changed'] or 'none'}.",
        _controls(found["closed"]),
        f"Marks planted in file names and PNG text chunks were found on the server in: {found['marks'] or 'no place'} "
        f"({found['bytes-searched'] / 1e6:.0f} MB searched, after a run with {found['updates']} updates and an "
        f"unreadable image). The same search finds the mark in {found['control']}.",
    ]


def _controls(closed: dict[str, str]) -> str:
    """Return what got through beside the attempts; in cells from before the ways out had a control, what had none."""
    if _AIMED in closed:
        return (
            "Beside the attempts, the same programs got through where they must: to the edge, to the SuperLink and its "
            "list of runs from its own network, out of a network that has a way out, through the edge as a proxy to "
            "its health check, and as a SuperNode with a registered key."
        )
    return (
        "Beside the attempts, the same programs got through where they must: to the edge, to the SuperLink from its "
        "own network, and as a SuperNode with a registered key. The two ways out had no such control yet, so their "
        "rows show nothing by themselves; whom a hospital talks to is counted by packets, above."
    )


def _footprint(found: Result | None) -> list[str]:
    if found is None:
        return []
    rows = ["| container | memory, MB | processor, % of a core |", "|---|---|---|"]
    rows += [
        f"| {service} | {seen['memory-mb']:.0f} | {seen['cpu-percent']:.1f} |"
        for service, seen in sorted(found["idle"].items())
    ]
    sizes = ", ".join(f"{image} {size:.0f} MB" for image, size in found["images-mb"].items())
    return ["## What it costs", f"Images, unpacked: {sizes}. Idle, a minute after the start:", "\n".join(rows)]
