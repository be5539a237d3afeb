"""The aggregation rule of a run in sentences, for a reader who has not seen its configuration."""

from __future__ import annotations

from collections.abc import Mapping

from federation.config import AggregationConfig

Setting = str | int | float | bool

_DEFAULTS: Mapping[str, Setting] = AggregationConfig().model_dump(by_alias=True)
_WHEN = {
    "fedavg": "A version was made when all sampled hospitals had answered, or the round's time was over.",
    "fedasync": "Every update made a version as it arrived.",
    "buffered": "A version was made of every {buffer-size} updates, in order of arrival.",
    "semi-synchronous": "A version was made every {period-s:g} s, of the updates that had arrived by then.",
}
_AGES = {
    "constant": "An old update weighed as much as a fresh one.",
    "exponential": "An update s versions old weighed {staleness-alpha:g}^s of a fresh one.",
    "polynomial": "An update s versions old weighed (1 + s)^-{staleness-exponent:g} of a fresh one.",
    "hinge": "An update up to {staleness-grace} versions old weighed as much as a fresh one, one s versions old after "
    "that 1 / ({staleness-slope:g} (s - {staleness-grace}) + 1) of it.",
}
_RELEASES = {
    "immediate": "Results left the hospitals at once: one that came too late had left as well.",
    "two-phase": "Results waited at the hospitals until the server wanted them: one that came too late was never "
    "released (two-phase release).",
}


def describe_rule(configuration: Mapping[str, Setting]) -> list[str]:
    """Return what the rule was, how age counted, what was done against drowning, and when results left.

    Args:
        configuration: the flat configuration of a run; a key that is not there counts with its default.
    """
    table = {key: configuration.get(f"aggregation.{key}", value) for key, value in _DEFAULTS.items()}
    sentences = [
        _WHEN.get(str(table["rule"]), "The rule was {rule}."),
        _AGES.get(str(table["staleness"]), "Age counted by {staleness}."),
        "One more than {max-staleness} versions old was refused.",
    ]
    if table["max-lead"]:
        sentences.append("A hospital that was {max-lead} updates ahead of the median one waited.")
    if table["balance"]:
        sentences.append(
            "Updates of a hospital that was seldom heard counted for more: (mean number of updates / own number)"
            "^{balance:g}, at most {balance-limit:g} times."
        )
    sentences.append(_RELEASES.get(str(table["release"]), "Results left by {release}."))
    return [sentence.format(**table) for sentence in sentences]
