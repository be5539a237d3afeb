"""The manifests as data: what they declare, what they refer to, and whom the network policies let through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "kubernetes"
COMPONENT = "app.kubernetes.io/component"

Manifest = dict[str, Any]


class Pod(NamedTuple):
    """A pod template and the name of what makes it."""

    name: str
    template: Manifest

    @property
    def spec(self) -> Manifest:
        return self.template["spec"]

    @property
    def labels(self) -> dict[str, str]:
        return self.template["metadata"]["labels"]

    @property
    def containers(self) -> list[Manifest]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]


def files() -> list[Path]:
    """Return every file with manifests."""
    return [path for path in sorted(FOLDER.rglob("*.yaml")) if path.name != "kustomization.yaml"]


def kustomizations() -> dict[Path, Manifest]:
    return {path: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.rglob("kustomization.yaml"))}


def manifests() -> list[Manifest]:
    return [item for path in files() for item in yaml.safe_load_all(path.read_text()) if item]


def of_kind(kind: str) -> list[Manifest]:
    return [item for item in manifests() if item["kind"] == kind]


def pods() -> list[Pod]:
    """Return every pod template."""
    return [
        Pod(item["metadata"]["name"], item["spec"]["template"])
        for item in manifests()
        if "template" in item.get("spec", {})
    ]


def sources(volume: Manifest) -> Iterator[tuple[str, str, list[Manifest]]]:
    """Yield kind, name and items of every configuration map and secret in a volume."""
    projected = volume.get("projected", {}).get("sources", [])
    for part in [volume, *projected]:
        if "configMap" in part:
            yield "configmap", part["configMap"]["name"], part["configMap"].get("items", [])
        if "secret" in part:
            found = part["secret"]
            yield "secret", found.get("secretName", found.get("name")), found.get("items", [])


def matches(selector: Manifest, labels: dict[str, str]) -> bool:
    """Return whether a label selector takes `labels`; an empty one takes all."""
    known = {"matchLabels", "matchExpressions"}
    assert set(selector) <= known
    wanted = selector.get("matchLabels", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for rule in selector.get("matchExpressions", []):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


class End(NamedTuple):
    """One end of a connection: its labels and its namespace; no labels for an address outside the cluster."""

    labels: dict[str, str] | None
    namespace: str = "aegis"


def _is_peer(peer: Manifest, end: End) -> bool:
    assert set(peer) <= {"podSelector", "namespaceSelector"}
    if end.labels is None:
        return False
    namespaces = peer.get("namespaceSelector")
    inside = (
        end.namespace == "aegis"
        if namespaces is None
        else matches(namespaces, {"kubernetes.io/metadata.name": end.namespace})
    )
    return inside and matches(peer.get("podSelector", {}), end.labels)


def _lets(direction: str, mine: End, other: End, port: int) -> bool:
    """Return whether the policies on `mine` let a connection with `other` through; without a policy all do."""
    if mine.namespace != "aegis" or mine.labels is None:
        return True
    binding = [
        item["spec"]
        for item in of_kind("NetworkPolicy")
        if direction.title() in item["spec"]["policyTypes"] and matches(item["spec"]["podSelector"], mine.labels)
    ]
    key = "from" if direction == "ingress" else "to"
    rules = [rule for spec in binding for rule in spec.get(direction, [])]
    return not binding or any(
        (key not in rule or any(_is_peer(peer, other) for peer in rule[key]))
        and ("ports" not in rule or any(item["port"] == port for item in rule["ports"]))
        for rule in rules
    )


def admits(target: End, source: End, port: int) -> bool:
    """Return whether the policies on `target` let `source` in, wherever those on `source` let it go."""
    return _lets("ingress", target, source, port)


def reaches(source: End, target: End, port: int) -> bool:
    """Return whether the network policies let `source` connect to `port` of `target`."""
    return _lets("egress", source, target, port) and admits(target, source, port)
