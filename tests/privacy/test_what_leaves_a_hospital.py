"""What leaves a hospital, restated: the fields of the contract, and on failure a code and its fixed sentence."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis_cache.store.cache import open_cache, read_manifest
from aegis_cache.store.manifest import GeneratorIdentity
from aegis_cache.store.provenance import Provenance, Source
from client_app import main
from client_app.boundary import guarded
from client_app.main import app
from client_app.updating import protect
from federation.config import TrainingConfig, parse_configuration
from federation.datasets.sites import load_site
from federation.errors import SiteErrorCode
from federation.metrics import Scores
from federation.models import build_model
from federation.parameters import Parameters, read_parameters
from federation.records.answers import decode_hospital_scores, decode_model_update
from federation.records.declarations import Declaration
from federation.records.tasks import DISCARD, RELEASE, encode_evaluation_task, encode_query, encode_training_task
from federation.records.tensors import encode_parameters
from server_app.simulation.run import simulate
from server_app.simulation.timing import SiteTiming
from tests.client_app.calls import flat_configuration, make_context, make_message, wire_bytes
from tests.client_app.clinic import Clinic
from tests.client_app.masking import made_up_caches
from tests.client_app.masking.made_up_caches import make_cache


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(secret=st.text(max_size=40).map(lambda text: f"secret-{text}-of-a-patient"))
def test_reply_to_a_failed_task_is_a_code_and_its_fixed_sentence(tmp_path: Path, secret: str) -> None:
    def fail(message: Message, context: Context) -> RecordDict:
        raise OSError(secret)

    reply = guarded(fail)(make_message(RecordDict()), make_context(flat_configuration(tmp_path), hospital_id="north"))

    assert (reply.error.code, reply.error.reason) == (SiteErrorCode.INTERNAL, SiteErrorCode.INTERNAL.sentence)
    assert b"-of-a-patient" not in wire_bytes(reply)


@pytest.fixture
def answers(tmp_path: Path) -> dict[str, RecordDict]:
    """The successful answers of one simulated hospital to all three kinds of task."""
    flat = flat_configuration(
        tmp_path, data__phantom_examples=90, data__phantom_classes=2, model__name="mlp", training__device="cpu"
    )
    context = make_context(flat, partition_id=0, num_partitions=1)
    tasks = {"query": encode_query("run")}
    configuration = parse_configuration(flat)
    dataset = load_site(configuration.data, site=0, sites=1, seed=0)
    arrays = encode_parameters(read_parameters(build_model(configuration.model, dataset.info, seed=0)))
    plan = TrainingConfig(device="cpu")
    tasks["train"] = encode_training_task(arrays, model_version=0, plan=plan, seed=1, run="run")
    tasks["evaluate"] = encode_evaluation_task(arrays, model_version=0, split="validation", run="run")
    return {kind: app(make_message(content, kind), context).content for kind, content in tasks.items()}


ALLOWED: dict[str, dict[str, set[str]]] = {
    "query": {
        "config": {
            "protocol", "hospital-id", "examples", "task", "classes", "channels", "height", "width", "label-digest",
        }
    },
    "train": {"arrays": set(), "config": {"protocol", "hospital-id", "model-version"}, "metrics": {"examples"}},
    "evaluate": {
        "config": {"protocol", "hospital-id", "model-version", "split"},
        "metrics": {"examples", "accuracy", "auroc"},
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", ALLOWED)
def test_answer_holds_the_fields_of_the_contract_and_no_other(answers: dict[str, RecordDict], kind: str) -> None:
    found = {name: set(record) if name != "arrays" else set() for name, record in answers[kind].items()}

    assert found == ALLOWED[kind]


MARKER = "patient-4711"
_DECLARED = {
    f"privacy.{name}"
    for name in (
        "mechanism", "relation", "unit", "clip-norm", "delta", "account", "spent", "cap", "releases", "uncovered",
        "event.kind", "event.noise-multiplier",
    )
}  # fmt: skip
_SAMPLED = {"privacy.event.sampling-probability", "privacy.event.steps"}
NOISED = {"protocol", "hospital-id", "model-version", *_DECLARED}
MECHANISMS: dict[str, dict[str, Any]] = {
    "dp-sgd": {"privacy__mechanism": "dp-sgd", "privacy__account": "rdp", "privacy__noise_multiplier": 5.0},
    "update-gaussian": {"privacy__mechanism": "update-gaussian", "privacy__noise_multiplier": 24.22},
}


def private_hospital(folder: Path, mechanism: str) -> Clinic:
    """Return a deployed hospital whose path and class names hold a marker."""
    return Clinic(folder / MARKER, class_names=MARKER, **MECHANISMS[mechanism])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_private_update_holds_its_declaration_and_no_further_field(volume: Path, mechanism: str) -> None:
    content = private_hospital(volume, mechanism).train().content

    further = _SAMPLED if mechanism == "dp-sgd" else set()
    assert {name: set(record) for name, record in content.items() if name != "arrays"} == {
        "config": NOISED | further, "metrics": {"examples"},
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_private_scores_hold_their_declaration_and_no_further_field(volume: Path, mechanism: str) -> None:
    content = private_hospital(volume, mechanism).evaluate().content

    assert {name: set(record) for name, record in content.items()} == {
        "config": NOISED | {"split"}, "metrics": {"examples", "accuracy"},
    }  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_private_answers_hold_no_marker_no_path_and_no_image(volume: Path, mechanism: str) -> None:
    hospital = private_hospital(volume, mechanism)

    sent = b"".join(wire_bytes(reply) for reply in (hospital.train(), hospital.evaluate()))

    assert MARKER.encode() not in sent
    assert str(volume).encode() not in sent
    for images in (hospital.data.train, hospital.data.validation):
        assert not any(image.tobytes() in sent for image in images.images)


def test_update_before_its_noise_never_leaves(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Parameters] = []

    def watch(update: Parameters, *arguments: Any) -> Parameters:
        seen.append({name: value.clone() for name, value in update.items()})
        return protect(update, *arguments)

    monkeypatch.setattr(main, "protect", watch)
    reply = private_hospital(volume, "update-gaussian").train()

    released, sent = decode_model_update(reply.content).update, wire_bytes(reply)
    (raw,) = seen
    for name, value in raw.items():
        assert value.numpy().tobytes() not in sent
        assert not (released[name] == value).any()


def test_exact_scores_never_leave_under_a_mechanism(volume: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Scores(accuracy=0.123456789, auroc=0.987654321, loss=3.0, examples=20)
    monkeypatch.setattr(main, "score", lambda *_: exact)

    found = decode_hospital_scores(private_hospital(volume, "dp-sgd").evaluate().content).scores

    assert found.accuracy != exact.accuracy
    assert (found.auroc, found.loss, found.examples) == (None, None, 20)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_declaration_depends_on_nothing_that_the_images_hold(volume: Path, mechanism: str) -> None:
    """Two hospitals with other images and labels, but as many, declare the same."""
    declarations: list[tuple[Declaration | None, Declaration | None]] = []
    for name in ("one", "two"):
        hospital = Clinic(volume / name, seed=len(declarations), **MECHANISMS[mechanism])
        replies = (hospital.train(), hospital.evaluate())
        declarations.append(
            (
                decode_model_update(replies[0].content).declaration,
                decode_hospital_scores(replies[1].content).declaration,
            )
        )

    assert declarations[0] == declarations[1]
    assert declarations[0][0] is not None


PATTERN = np.frombuffer(bytes.fromhex("7aa351c8e417b92d6f80c35e14d2a79b"), dtype=np.uint8)
LABELS = np.random.default_rng(5).permutation(np.arange(60) % 3)
GENERATOR, USE = "generator-0815", "A use that names cohort-1234."
SIZE = 30
MASKED: dict[str, Any] = {
    "masking__mode": "interleaved",
    "masking__size": str(SIZE),
    "masking__micro_batch": 16,
    "masking__refresh": "subset",
    # Private images had a part in the planted caches: no epsilon for scores could be claimed beside such updates.
    "run__hospital_evaluation": False,
}
PROTECTED: dict[str, dict[str, Any]] = {"none": {}, **MECHANISMS}


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let made-up caches name a generator that occurs nowhere else."""

    def name(**fields: Any) -> GeneratorIdentity:
        return GeneratorIdentity(**{**fields, "name": GENERATOR})

    monkeypatch.setattr(made_up_caches, "GeneratorIdentity", name)


def plant_cache(folder: Path, *, height: int = 8, filtered: bool = True, **given: Any) -> set[bytes]:
    """Publish a cache of 60 images made of one rare pattern, and return what of it must never be seen elsewhere."""
    fill = np.resize(PATTERN, (height, height))
    origin = Provenance(source=Source.PRIVATE_FILTERED, uses=(USE,)) if filtered else Provenance.public()
    shape = (1, height, height)
    make_cache(folder, images=60, shape=shape, fill=fill, labels=LABELS, provenance=origin, **given)
    manifest, cache = read_manifest(folder), open_cache(folder)
    assert GENERATOR in manifest.model_dump_json()
    assert np.array_equal(cache.labels, LABELS)
    texts = {GENERATOR, USE, cache.digest[:16], *(shard.sha256 for shard in manifest.shards)}
    return {*spellings_of(PATTERN), *map(str.encode, texts), *windows_of(LABELS)}


def spellings_of(pixels: np.ndarray) -> set[bytes]:
    """Return sixteen pixels as an answer, a log or a JSON file might hold them: as bytes, and as text of many kinds."""
    raw, row = pixels.tobytes(), pixels[:8]
    scaled = (row / 255).astype(np.float32)
    found = {raw, scaled.tobytes(), raw.hex().encode(), raw.hex().upper().encode(), repr(raw)[2:-1].encode()}
    for values in (row.tolist(), scaled.tolist(), scaled.astype(np.float64).round(4).tolist()):
        found |= {comma.join(map(str, values)).encode() for comma in (",", ", ", " ", "\n")}
    for before in range(3):
        # What base64 makes of bytes depends on how many stand before them; its first and last characters, on which.
        found.add(base64.b64encode(bytes(before) + raw)[4 if before else 0 : -4])
    return found


def windows_of(labels: np.ndarray) -> set[bytes]:
    """Return labels in a row: any four as the numbers that a network trains on, twelve in smaller ones or as text."""
    rows = [labels[start : start + 4] for start in range(len(labels) - 3)]
    found = {row.tobytes() for row in rows if len(set(row.tolist())) == 3}
    for row in (labels[start : start + 12] for start in range(len(labels) - 11)):
        found |= {row.astype(kind).tobytes() for kind in (np.uint8, np.int32, np.float32)}
        found |= {comma.join(map(str, row.tolist())).encode() for comma in (",", ", ", "\n")}
    return found


def masked_hospital(folder: Path, mechanism: str, **settings: Any) -> tuple[Clinic, set[bytes]]:
    """Return a hospital whose folders, class names and cache hold markers, and these."""
    place, names = folder / MARKER, tuple(f"{MARKER}-{number}" for number in range(3))
    markers = plant_cache(place / "cache-2718", class_names=names, filtered=mechanism != "dp-sgd")
    policy = {"masking": {"cache": str(place / "cache-2718")}}
    hospital = Clinic(place, class_names=MARKER, policy=policy, **{**PROTECTED[mechanism], **MASKED, **settings})
    return hospital, {*markers, MARKER.encode(), b"cache-2718"}


def require_none(markers: set[bytes], content: bytes) -> None:
    assert content
    assert [marker for marker in markers if marker in content] == []


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("mechanism", PROTECTED)
def test_no_answer_to_a_masked_task_holds_anything_of_the_cache(volume: Path, mechanism: str) -> None:
    hospital, markers = masked_hospital(volume / "one", mechanism)
    waiting, _ = masked_hospital(volume / "two", mechanism, aggregation__release="two-phase")

    replies = [hospital.train(), waiting.train("m1"), waiting.decide(RELEASE)]
    replies += [waiting.train("m2", version=1), waiting.decide(DISCARD, 1)]

    assert all(reply.has_content() for reply in replies)
    require_none(markers, b"".join(map(wire_bytes, replies)))


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"masking.size": "60"}, SiteErrorCode.MASKING_CACHE),
        ({"privacy.mechanism": "dp-sgd", "privacy.noise-multiplier": 5.0}, SiteErrorCode.MASKING_PROVENANCE),
        ({"masking.micro-batch": SIZE + 1}, SiteErrorCode.CONFIGURATION),
    ],
)
def test_no_refusal_of_a_masked_task_holds_anything_of_the_cache(
    volume: Path, change: dict[str, Any], code: SiteErrorCode
) -> None:
    hospital, markers = masked_hospital(volume, "none")
    hospital.flat |= change

    reply = hospital.train()

    assert reply.error.code == code
    require_none(markers, wire_bytes(reply))


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("mechanism", PROTECTED)
def test_hospitals_own_log_and_ledger_hold_no_image_of_the_cache(
    volume: Path, mechanism: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    hospital, markers = masked_hospital(volume, mechanism)
    hospital.train()
    hospital.flat |= {"masking.size": "60"}
    hospital.train("m2")
    pictures = markers & {*spellings_of(PATTERN), *windows_of(LABELS)}

    kept = b"".join(path.read_bytes() for path in (volume / MARKER / "state").rglob("*") if path.is_file())
    kept += "".join(capfd.readouterr()).encode() + caplog.text.encode()

    assert len(pictures) > 10
    require_none(pictures, kept)


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("mechanism", PROTECTED)
def test_nothing_that_a_server_writes_holds_anything_of_a_cache(
    volume: Path, mechanism: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    flat = flat_configuration(
        volume, masking__cache=str(volume / "caches"), aggregation__rounds=2, **PROTECTED[mechanism], **MASKED
    )  # fmt: skip
    configuration = parse_configuration(flat)
    markers = set()
    for index in range(2):
        name = f"hospital-{index:03d}"
        info = load_site(configuration.data, site=index, sites=2, seed=0).info
        given: dict[str, Any] = {"hospital_id": name, "data_set": "phantom", "class_names": info.class_names}
        folder = volume / "caches" / name
        markers |= plant_cache(folder, height=info.height, filtered=mechanism != "dp-sgd", **given)

    summary = simulate(configuration, app, [SiteTiming()] * 2)

    require_none(markers, b"said: " + "".join(capfd.readouterr()).encode() + caplog.text.encode())
    written = [path for path in (volume / "run").rglob("*") if path.is_file() and "sites" not in path.parts]
    assert summary.updates_applied == 4
    assert {"summary.json", "events.jsonl", "model.safetensors"} <= {path.name for path in written}
    for path in written:
        require_none(markers, path.read_bytes())


@pytest.mark.parametrize(
    "spell",
    [
        lambda image: str(image.tolist()),
        lambda image: repr(image.tobytes()),
        lambda image: image.tobytes().hex(),
        lambda image: base64.b64encode(b"x" + image.tobytes()).decode(),
        lambda image: str((image / 255).astype(np.float32).tolist()),
    ],
    ids=["numbers", "bytes", "hex", "base64", "floats"],
)
def test_image_that_is_written_as_text_is_found(spell: Callable[[np.ndarray], str]) -> None:
    written = spell(np.resize(PATTERN, (8, 8))).encode()

    assert any(marker in written for marker in spellings_of(PATTERN))
