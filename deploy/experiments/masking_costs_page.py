"""The tables of the page on masking that say what it costs in time and memory."""

from __future__ import annotations

from collections.abc import Sequence

from deploy.experiments import masking_costs
from deploy.experiments.cells import Result

Results = dict[str, Result]

_PAPER = {"mnist": 6.51, "cifar": 5.40}


def cost_sections(results: Results) -> list[str]:
    """Return the sections on time and memory; nothing of what was not measured."""
    return [*_times(results), *_pieces(results), *_memory(results)]


def _times(results: Results) -> list[str]:
    rows = [
        "| data | mode | threads | precision | over no masking | pairs | paper | by counting images |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for data, paper in _PAPER.items():
        count = 1 + masking_costs.SIZE / masking_costs.REAL[data]
        for threads, precision, modes in _timed():
            for mode in modes:
                if found := results.get(f"time-{data}-{mode}-{threads}-{precision}"):
                    pairs = ", ".join(f"{ratio:.2f}" for ratio in found["ratios"])
                    counted = f"{count:.2f}" if mode != "joint" else "-"
                    rows.append(
                        f"| {data} | {mode} | {threads} | {precision} | {found['median-ratio']:.2f} | {pairs} | "
                        f"{paper:.2f} | {counted} |"
                    )
    if len(rows) == 2:
        return []
    return [
        "## Time",
        f"Local training of one client with {masking_costs.REAL['mnist']} images of MNIST or "
        f"{masking_costs.REAL['cifar']} of CIFAR-10, three epochs, M={masking_costs.SIZE}, over the same training "
        "without masking in the same run, pair by pair after a first one that is not counted. With one thread it is "
        "processor time. Opening the cache, once an update, is not in it. Where the count is undercut, it is because "
        "masking takes no optimizer steps of its own (`interleaved`) or one an epoch. Tried by hand, without a "
        "command: `torch.compile` made a step of this network twice as slow on this CPU, and needs a compiler at the "
        "hospital; a fused Adam makes the unmasked training "
        "faster by more than the masked one and would bring the ratios near the count. No GPU was at hand; "
        "`training.precision=mixed` is automatic mixed precision there, too.",
        "\n".join(rows),
    ]


def _timed() -> Sequence[tuple[int, str, Sequence[str]]]:
    return [(1, "full", masking_costs.MODES)] + [
        (threads, precision, ("interleaved",))
        for threads in (1, 2)
        for precision in ("full", "mixed")
        if (threads, precision) != (1, "full")
    ]


def _pieces(results: Results) -> list[str]:
    sizes = masking_costs.PIECES
    head = ["| data | " + " | ".join(map(str, sizes)) + " |", "|---" * (len(sizes) + 1) + "|"]
    rows = [
        f"| {data} | " + " | ".join(f"{found['ratios'][str(size)]:.2f}" for size in sizes) + " |"
        for data in _PAPER
        if (found := results.get(f"pieces-{data}"))
    ]
    if not rows:
        return []
    return [
        "One epoch of `interleaved` over one without masking, by `masking.micro-batch`, one thread, medians of "
        "seven; building the network is in both, so the ratios are lower than those of three epochs. Small pieces sum "
        "the gradient of the large dense layer more often; the largest need blocks of memory beyond 32 MB, which the C "
        "library takes from the system anew each time. `auto` takes 160.",
        "\n".join([*head, *rows]),
    ]


def _memory(results: Results) -> list[str]:
    found = results.get("memory")
    if not found:
        return []
    rows = ["| training | M | peak of the process, MB, each time |", "|---|---|---|"]
    rows += [
        f"| {mode} | {size} | {', '.join(f'{peak / 1e6:.0f}' for peak in peaks)} |"
        for mode, sizes in found["peak-bytes"].items()
        for size, peaks in sizes.items()
    ]
    return ["## Memory", "\n".join(rows)]
