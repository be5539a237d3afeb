"""The manifests meet the restricted Pod Security Standard, hold no secret, and refer to nothing that is not there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import pytest
import typer
import yaml  # type: ignore[import-untyped]

from deploy.cli import main
from deploy.settings import load_configuration
from tests.deploy.kubernetes.manifests import (
    COMPONENT,
    FOLDER,
    ROOT,
    End,
    Pod,
    admits,
    files,
    kustomizations,
    manifests,
    matches,
    of_kind,
    pods,
    reaches,
    sources,
)

DOCUMENT = ROOT / "docs" / "deploy" / "kubernetes.md"
SERVER_PODS = {"superlink", "serverapp", "edge", "coordinator", "federation"}
each_pod = pytest.mark.parametrize("pod", pods(), ids=lambda pod: pod.name)


def container_of(name: str) -> dict[str, Any]:
    (found,) = [pod.containers[0] for pod in pods() if pod.name == name]
    return found


def composed() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    return services


def given_files(pod: Pod, container: dict[str, Any]) -> set[str]:
    """Return the files that the container finds at its mounts of configuration maps and secrets."""
    volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
    return {
        mount["mountPath"] if "subPath" in mount else f"{mount['mountPath']}/{item['path']}"
        for mount in container["volumeMounts"]
        for _, _, items in sources(volumes.get(mount["name"], {}))
        for item in items
        if mount.get("subPath", item["path"]) == item["path"]
    }


def test_every_part_of_the_server_is_there() -> None:
    assert {pod.name for pod in pods()} == SERVER_PODS
    assert {pod.labels[COMPONENT] for pod in pods()} == SERVER_PODS


def test_every_manifest_is_named_in_its_kustomization_and_exists() -> None:
    named = {path.parent / name for path, content in kustomizations().items() for name in content["resources"]}

    assert named == set(files())


def test_namespace_admits_only_restricted_pods() -> None:
    (namespace,) = of_kind("Namespace")

    labels = namespace["metadata"]["labels"]
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")} == {"restricted"}
    assert {content["namespace"] for content in kustomizations().values()} == {namespace["metadata"]["name"]}


@each_pod
def test_pod_runs_as_the_user_of_the_images_and_confined(pod: Pod) -> None:
    context = pod.spec["securityContext"]

    assert context["runAsNonRoot"] is True
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (10001, 10001, 10001)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod.spec)


@each_pod
def test_pod_gets_no_credential_of_the_cluster(pod: Pod) -> None:
    assert pod.spec["automountServiceAccountToken"] is False
    assert pod.spec["enableServiceLinks"] is False
    assert "serviceAccountName" not in pod.spec


@each_pod
def test_container_has_no_privilege_and_writes_nowhere_but_to_volumes(pod: Pod) -> None:
    for container in pod.containers:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}


@each_pod
def test_volume_is_of_a_kind_that_is_allowed_and_bounded(pod: Pod) -> None:
    for volume in pod.spec["volumes"]:
        (kind,) = set(volume) - {"name"}
        assert kind in {"configMap", "secret", "projected", "emptyDir", "persistentVolumeClaim"}
        assert kind != "emptyDir" or volume["emptyDir"]["sizeLimit"]


@each_pod
def test_only_writers_of_a_volume_mount_it_for_writing(pod: Pod) -> None:
    writable = {
        (pod.name, mount["mountPath"])
        for container in pod.containers
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    }

    writers = {("superlink", "/var/lib/aegis-server"), ("serverapp", "/runs"), ("federation", "/runs")}
    assert writable - {(pod.name, "/tmp")} <= writers


@each_pod
def test_container_is_bounded(pod: Pod) -> None:
    for container in pod.containers:
        resources = container["resources"]
        assert set(resources["requests"]) == {"cpu", "memory"}
        assert "memory" in resources["limits"]


@each_pod
def test_container_that_stays_is_probed(pod: Pod) -> None:
    if pod.spec.get("restartPolicy") == "OnFailure":
        return
    (container,) = pod.containers

    assert "livenessProbe" in container
    assert {"readinessProbe", "startupProbe"} & set(container)


def test_page_is_probed_under_a_name_that_it_answers_to() -> None:
    container = container_of("coordinator")

    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[kind]["httpGet"]["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_no_secret_stands_in_a_manifest() -> None:
    texts = [path.read_text() for path in FOLDER.rglob("*") if path.is_file()]

    assert not of_kind("Secret")
    assert not [content for content in kustomizations().values() if "secretGenerator" in content]
    assert not [text for text in texts if re.search(r"BEGIN|[0-9a-fA-F]{32}|[A-Za-z0-9+/]{48}", text)]
    for pod in pods():
        for container in pod.containers:
            values = {item["name"]: item["value"] for item in container.get("env", []) if "value" in item}
            assert not [name for name in values if re.search(r"KEY|SECRET|TOKEN|PASSW", name)]


@each_pod
def test_private_keys_come_from_secrets_and_only_where_they_are_used(pod: Pod) -> None:
    mounted = {
        item["key"]: kind for volume in pod.spec["volumes"] for kind, _, items in sources(volume) for item in items
    }
    private = {key for key in mounted if key.endswith((".key", ".secret"))}

    assert {mounted[key] for key in private} <= {"secret"}
    assert (
        private
        == {
            "superlink": {"superlink.key", "superexec.secret"},
            "serverapp": {"superexec.secret"},
            "edge": {"server.key"},
            "coordinator": set(),
            "federation": set(),
        }[pod.name]
    )


def test_images_are_named_in_the_kustomization_alone_by_a_fixed_tag() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    used = {container["image"] for pod in pods() for container in pod.containers}

    assert used == {"aegis-server:named-by-kustomization", "aegis-edge:named-by-kustomization"}
    for path, content in kustomizations().items():
        resources = [yaml.safe_load_all((path.parent / name).read_text()) for name in content["resources"]]
        text = str([list(items) for items in resources])
        tags = {item["name"]: item["newTag"] for item in content["images"]}
        assert {name for name in ("aegis-server", "aegis-edge") if f"{name}:named" in text} == set(tags)
        assert set(tags.values()) == {version}


def test_built_images_are_those_of_the_kustomization() -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("Needs kubectl, whose `kustomize` builds the manifests; none is installed on this machine.")
    for path in kustomizations():
        command = ["kubectl", "kustomize", str(path.parent)]
        built = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        items = list(yaml.safe_load_all(built))

        assert "named-by-kustomization" not in built
        assert {item["metadata"].get("namespace", "aegis") for item in items} == {"aegis"}


@each_pod
def test_volume_and_mount_belong_together(pod: Pod) -> None:
    templates = [item["spec"].get("volumeClaimTemplates", []) for item in of_kind("StatefulSet")]
    claimed = {item["metadata"]["name"] for items in templates for item in items} if pod.name == "superlink" else set()
    declared = {volume["name"] for volume in pod.spec["volumes"]} | claimed
    mounted = {mount["name"] for container in pod.containers for mount in container["volumeMounts"]}

    assert declared == mounted


@each_pod
def test_what_a_pod_refers_to_is_declared_or_its_making_is_documented(pod: Pod) -> None:
    declared = {item["metadata"]["name"] for item in of_kind("PersistentVolumeClaim")}
    generated = {
        item["name"]: item["files"]
        for content in kustomizations().values()
        for item in content.get("configMapGenerator", [])
    }
    text = DOCUMENT.read_text()

    for volume in pod.spec["volumes"]:
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in declared
        for kind, name, items in sources(volume):
            assert items
            keys = {item["key"] for item in items}
            if kind == "configmap" and name in generated:
                assert keys <= set(generated[name])
                assert all((FOLDER / "run" / key).is_file() for key in keys)
                continue
            made = re.search(rf"create {kind}(?: generic)? {name}\b((?:[^\n]*\\\n)*[^\n]*)", text)
            assert made, f"{DOCUMENT.name} does not say how the {kind} {name} is made."
            given = {re.split(r"[=/]", part)[0] if "=" in part else Path(part).name for part in _from_files(made[1])}
            assert keys <= given


def _from_files(command: str) -> list[str]:
    return re.findall(r"--from-file=(\S+)", command)


@each_pod
def test_files_that_a_command_names_are_mounted(pod: Pod) -> None:
    for container in pod.containers:
        words = [word.partition("=")[2] or word for word in container.get("command", [])]
        named = {word for word in words if re.match(r"/(etc|run/secrets)/.*\.\w+$", word)}

        assert named <= given_files(pod, container)


def test_edge_finds_its_certificate_where_its_configuration_says() -> None:
    (pod,) = [pod for pod in pods() if pod.name == "edge"]
    configuration = (ROOT / "deploy" / "server" / "edge.conf.template").read_text()

    named = set(re.findall(r"(/etc/aegis-edge/[\w./-]+\.(?:crt|key))", configuration))

    assert named == given_files(pod, pod.containers[0])


def test_edge_is_told_everything_that_its_configuration_asks_for() -> None:
    script = (ROOT / "deploy" / "server" / "edge.sh").read_text()
    asked = set(re.findall(r"\$(AEGIS_\w+)", script[script.index("envsubst '") :].partition("<")[0]))
    told = {item["name"]: item["value"] for item in container_of("edge")["env"]}

    assert set(told) == asked
    (namespace,) = of_kind("Namespace")
    assert told["AEGIS_SUPERLINK"].startswith(f"superlink.{namespace['metadata']['name']}.svc.")


def test_page_finds_the_files_of_a_consortium() -> None:
    (pod,) = [pod for pod in pods() if pod.name == "coordinator"]

    files_of_page = {"consortium.toml", "ca.crt", "superlink.crt", "server/current/server.crt"}
    assert given_files(pod, pod.containers[0]) == {f"/etc/consortium/{name}" for name in files_of_page}


@pytest.mark.parametrize("name", ["superlink", "serverapp", "federation"])
def test_command_is_that_of_the_server_on_one_machine(name: str) -> None:
    # A Job ends with its run, where a container of an engine stays.
    assert container_of(name)["command"] == [part for part in composed()[name]["command"] if part != "--stay"]


def test_page_is_served_as_on_one_machine_and_answers_to_its_names_in_the_cluster() -> None:
    command, own = container_of("coordinator")["command"], composed()["coordinator"]["command"]

    assert command[: len(own)] == own
    assert command[len(own) :] == ["--name=coordinator.aegis.svc", "--name=$(POD_IP)"]


@pytest.mark.parametrize("name", ["coordinator", "federation"])
def test_command_is_one_that_exists_with_options_that_exist(name: str) -> None:
    program, *words = container_of(name)["command"]
    found: click.Command = typer.main.get_command(main)
    context = click.Context(found)
    while isinstance(found, click.Group):
        command = found.get_command(context, words.pop(0))
        assert command
        found = command

    assert program == "aegis"
    with found.make_context(name, words):
        pass


def test_run_that_is_offered_as_an_example_can_be_configured() -> None:
    configuration = load_configuration(ROOT, FOLDER / "run" / "run.toml", [])

    assert configuration.run.root == "/runs"


def test_services_and_budgets_select_pods_that_exist() -> None:
    services = {item["metadata"]["name"]: item["spec"] for item in of_kind("Service")}
    (budget,) = of_kind("PodDisruptionBudget")

    assert set(services) == {"edge", "superlink", "coordinator"}
    for name, spec in services.items():
        (pod,) = [pod for pod in pods() if matches({"matchLabels": spec["selector"]}, pod.labels)]
        ports = {port["name"]: port["containerPort"] for container in pod.containers for port in container["ports"]}
        assert pod.name == name
        assert {ports[item["targetPort"]] for item in spec["ports"]} == {item["port"] for item in spec["ports"]}
    assert [pod.name for pod in pods() if matches(budget["spec"]["selector"], pod.labels)] == ["edge"]
    (edge,) = [item["spec"] for item in of_kind("Deployment") if item["metadata"]["name"] == "edge"]
    assert edge["replicas"] > budget["spec"]["minAvailable"]


def test_only_the_edge_is_offered_outside_the_cluster() -> None:
    types = {item["metadata"]["name"]: item["spec"]["type"] for item in of_kind("Service")}

    assert types == {"edge": "LoadBalancer", "superlink": "ClusterIP", "coordinator": "ClusterIP"}
    assert not of_kind("Ingress")


def test_controllers_select_the_pods_they_make() -> None:
    for item in manifests():
        if item["kind"] in ("Deployment", "StatefulSet"):
            labels = item["spec"]["template"]["metadata"]["labels"]
            assert [pod.name for pod in pods() if matches(item["spec"]["selector"], pod.labels)] == [labels[COMPONENT]]


def test_pods_that_share_the_runs_go_where_the_server_app_is() -> None:
    sharing = {pod.name: pod for pod in pods() for volume in pod.spec["volumes"] if "persistentVolumeClaim" in volume}
    writer = sharing.pop("serverapp")

    assert set(sharing) == {"coordinator", "federation"}
    for pod in sharing.values():
        (rule,) = pod.spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule["topologyKey"] == "kubernetes.io/hostname"
        assert matches(rule["labelSelector"], writer.labels)
        assert not matches(rule["labelSelector"], pod.labels)


def test_two_server_apps_never_share_the_runs() -> None:
    (serverapp,) = [item["spec"] for item in of_kind("Deployment") if item["metadata"]["name"] == "serverapp"]

    assert (serverapp["replicas"], serverapp["strategy"]) == (1, {"type": "Recreate"})


OUTSIDE = End(None, "")
NEIGHBOUR = End({"app": "other"}, "default")
DNS = End({"k8s-app": "kube-dns"}, "kube-system")
PORTS = {"superlink": 8000, "edge": 8443, "coordinator": 8078}


@pytest.mark.parametrize("source", [OUTSIDE, NEIGHBOUR], ids=["outside", "another namespace"])
def test_from_outside_only_the_edge_is_reached(source: End) -> None:
    open_doors = {
        (pod.name, port)
        for pod in pods()
        for port in (53, 8000, 8078, 8090, 8091, 8443, 443)
        if reaches(source, End(pod.labels), port)
    }

    assert open_doors == {("edge", 8443)}


def test_only_the_servers_own_pods_reach_the_superlink() -> None:
    (superlink,) = [pod for pod in pods() if pod.name == "superlink"]

    found = {pod.name for pod in pods() if reaches(End(pod.labels), End(superlink.labels), PORTS["superlink"])}

    assert found == {"edge", "serverapp", "coordinator", "federation"}
    for labels in ({}, {COMPONENT: "other"}, {COMPONENT: "superlink"}):
        assert not admits(End(superlink.labels), End(labels), PORTS["superlink"])


@each_pod
def test_nothing_goes_out_but_to_names_and_the_superlink(pod: Pod) -> None:
    source = End(pod.labels)
    others = [End(other.labels) for other in pods() if other.name != "superlink"]

    assert reaches(source, DNS, 53)
    assert not reaches(source, DNS, 443)
    assert not any(reaches(source, End({"k8s-app": "other"}, "kube-system"), port) for port in (53, 443))
    assert not any(reaches(source, target, port) for target in (OUTSIDE, NEIGHBOUR) for port in (53, 80, 443))
    ports = (53, 443, 8000, 8078)
    assert not any(reaches(source, target, port) for target in others for port in ports)


def test_every_manifest_follows_the_schema_of_kubernetes() -> None:
    if find_spec("kubernetes_validate") is not None:
        command = [sys.executable, "-m", "kubernetes_validate"]
    elif shutil.which("kubernetes-validate") is not None:
        command = ["kubernetes-validate"]
    else:
        pytest.skip("Needs kubernetes-validate (pip install kubernetes-validate), which is not installed here.")

    finished = subprocess.run([*command, "--strict", *map(str, files())], capture_output=True, text=True, check=False)

    assert finished.returncode == 0, finished.stdout + finished.stderr
