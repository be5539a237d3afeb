"""`aegis attack`: what a person types, what is printed, and how it ends."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from attacks.victim import publish_cache
from deploy.attack.images import load_world
from deploy.cli import main
from deploy.extras import require_extras
from federation.config import DataConfig
from federation.datasets.npz_file import load_npz_file
from federation.errors import ConfigurationError

CALIBRATED = "rtf-cumulative-mlp-k1024-calibrated-1e-07"
PLAIN = "rtf-cumulative-mlp-k1024"
SMALL = ("--batches", "1", "--seeds", "1")


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(main, ["attack", *map(str, arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded exchange in `records`, and its images in `own.npz`."""
    folder = tmp_path_factory.mktemp("recorded")
    code, output = run(
        "record", "--crafted", CALIBRATED, "--out", folder / "records", "--keep-images", folder / "own.npz"
    )
    assert code == 0, output
    return folder


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own to run in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_policy(folder: Path, root: Path) -> Path:
    path = folder / "site.toml"
    path.write_text(
        f'hospital-id = "charite"\nstate-dir = "{folder}/state"\nkeys-dir = "{folder}/keys"\n'
        f'[data]\nid = "chest"\nname = "npz"\nroot = "{root}"\n'
    )
    return path


def test_list_tells_every_attack_and_defence() -> None:
    code, output = run("list", "--json")

    content = json.loads(output)
    assert code == 0
    (analytic,) = [row for row in content["attacks"] if row["name"] == "analytic-inversion"]
    assert (analytic["controls"], analytic["knows"], analytic["rounds"], analytic["sees"]) == ([], [], 1, "update")
    assert "soteria-50" in [row["option"] for row in content["defences"]]
    assert run("list")[0] == 0


def test_recorded_exchange_is_read_again(recorded: Path) -> None:
    code, output = run(
        "run", "--records", recorded / "records", "--data", "npz", "--data-root", recorded / "own.npz", "--json"
    )

    content = json.loads(output)
    (record,) = content["records"]
    rates = {rate["threshold-db"]: rate["recovered"] for rate in record["match"]["found"]["rates"]}
    assert code == 1
    assert content["finding"] is True
    assert (record["model"], record["layers"], record["examples"]) == ("mlp", ["hidden"], 64)
    assert rates[30.0]["count"] == 64
    assert rates[30.0]["share"] >= 0.8
    assert rates[30.0]["low"] > 0.7
    assert record["guard"]


def test_without_images_candidates_and_findings_are_told_and_no_share(recorded: Path) -> None:
    code, output = run("run", "--records", recorded / "records")

    assert code == 1
    assert "candidates" in output
    assert "guard: collinear-rows" in output
    assert "--images-from site.toml" in output
    assert "dB" not in output


def test_hospital_names_its_images_by_its_policy_and_draws_them_for_itself(recorded: Path, tmp_path: Path) -> None:
    policy, picture = write_policy(tmp_path, recorded / "own.npz"), tmp_path / "read.png"

    code, output = run("run", "--records", recorded / "records", "--images-from", policy, "--pictures", picture)

    assert code == 1
    assert "more than a guess: yes" in output
    assert "shows patients" in " ".join(output.split())
    assert stat.S_IMODE(picture.stat().st_mode) == 0o600
    with Image.open(picture) as drawn:
        red, green, _ = np.array(drawn.convert("RGB"))[:14].transpose(2, 0, 1).astype(int)
    assert (red - green > 100).any()


def test_no_picture_is_drawn_unless_asked_for(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    run("run", "--records", recorded / "records", "--data", "npz", "--data-root", recorded / "own.npz")

    assert list(tmp_path.iterdir()) == []


def test_kept_images_are_those_trained_on_and_foreign_ones_for_their_owner_alone(recorded: Path) -> None:
    kept = load_npz_file(DataConfig(name="npz", root=str(recorded / "own.npz")), seed=0)

    assert len(kept.train) == 64
    assert len(kept.validation) + len(kept.test) == 900
    assert stat.S_IMODE((recorded / "own.npz").stat().st_mode) == 0o600


def test_honest_network_is_no_finding_without_images(tmp_path: Path) -> None:
    out = tmp_path / "records"
    assert run("record", "--crafted", "analytic-inversion", "--out", out, "--learning-rate", "0.01")[0] == 0

    code, output = run("run", "--records", out, "--json")

    assert code == 0, output
    assert json.loads(output)["records"][0]["guard"] == []


def test_simulation_writes_tables_plot_and_pictures_and_is_not_run_again(
    there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output = run("run", "--attack", PLAIN, *SMALL, "--out", "shown", "--json")

    content = json.loads(output)
    assert code == 0, output
    assert {path.name for path in Path("shown").iterdir()} == {
        "table.md",
        "table.csv",
        "table.json",
        "recovery.svg",
        "pictures.png",
    }
    assert [case["threshold"] for case in content["worst"]] == ["18 dB", "24 dB", "30 dB", "40 dB", "tau*"]
    assert all(case["low"] <= case["share"] <= case["high"] for case in content["worst"])
    assert content["worst"][3]["share"] > 0.8
    assert content["worst"][3]["excess"] == content["worst"][3]["share"] - content["worst"][3]["guessed"]
    assert "no update: best foreign image" in Path("shown/recovery.svg").read_text()
    lines = list(csv.DictReader(Path("shown/table.csv").read_text().splitlines()))
    assert [line["threshold"] for line in lines] == ["18 dB", "24 dB", "30 dB", "40 dB", "tau*"]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("run again")

    assert len(list(Path("runs/attacks/simulated/pictures").iterdir())) == 1
    monkeypatch.setattr("deploy.attack.simulation.evaluate", refuse)
    assert run("run", "--attack", PLAIN, *SMALL, "--json")[0] == 0
    with pytest.raises(AssertionError, match="run again"):
        run("run", "--attack", PLAIN, *SMALL, "--fresh")


def test_table_takes_the_worst_attack_of_every_defence(there: Path) -> None:
    assert run("run", "--attack", PLAIN, "--attack", "analytic-inversion", *SMALL)[0] == 0
    assert (
        run("run", "--attack", PLAIN, *SMALL, "--name", "masked", "--masking", "interleaved", "--size", "1024")[0] == 0
    )

    assert not list(there.rglob("*.npz"))
    code, output = run("run", "--attack", PLAIN, "--attack", "analytic-inversion", *SMALL, "--out", "shown")
    assert (code, Path("shown/pictures.png").exists()) == (0, False)
    assert "no pictures of 2 attacks" in " ".join(output.split())

    code, output = run("table", "runs/attacks/simulated", "runs/attacks/masked", "--out", "merged", "--json")

    content = json.loads(output)
    worst = {(case["defence"], case["threshold"]): case for case in content["worst"]}
    assert code == 0
    assert {row["attack"] for row in content["rows"]} == {PLAIN, "analytic-inversion"}
    plain, masked = worst["none", "40 dB"], worst["interleaved M=1024 of real", "40 dB"]
    assert (plain["attack"], plain["attacks"], masked["attacks"]) == (PLAIN, 2, 1)
    assert masked["share"] < plain["share"]
    assert "Worst case over attacks" in Path("merged/table.md").read_text()


def test_synthetic_images_are_drawn_from_a_cache(there: Path) -> None:
    world = load_world("phantom", None, None)
    publish_cache(there / "cache", world.auxiliary.take(np.arange(300)), world.info)

    code, output = run(
        "run", "--attack", PLAIN, *SMALL, "--masking", "joint", "--size", "100", "--synthetic", "cache", "--json"
    )

    assert code == 0, output
    assert "joint M=100 of cache-" in json.loads(output)["rows"][0]["defence"]


def test_auto_size_reckons_with_the_capacity(there: Path) -> None:
    code, output = run(
        "run", "--attack", PLAIN, *SMALL, "--masking", "joint", "--size", "auto", "--capacity", 128, "--json"
    )

    assert code == 0, output
    assert json.loads(output)["rows"][0]["defence"] == "joint M=319 of real"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--attack", "rtf-cumulative-mlp-k1042"), "nearest is 'rtf-cumulative-mlp-k1024'"),
        (("--size", "100"), "Expected --masking with --size"),
        (("--capacity", "100"), "Expected --masking with --size or --capacity"),
        (("--masking", "interleaved", "--size", "many"), "Expected --size auto or a number >= 1"),
        (("--masking", "interleaved", "--size", "9", "--capacity", "9"), "with --size auto only"),
        (("--masking", "interleave"), "nearest is 'interleaved'"),
        (("--epsilon", "1"), "Expected --mechanism with --epsilon"),
        (("--mechanism", "dp-sgd", "--epsilon", "1"), "Expected --mode delta"),
        (("--mechanism", "dp-sgd", "--mode", "delta"), "Expected --epsilon > 0"),
        (
            ("--mechanism", "dp-sgd", "--mode", "delta", "--epsilon", "1", "--epochs", "2"),
            "Expected --epochs 1 with --mechanism dp-sgd, found 2",
        ),
        (("--baseline", "soteria"), "nearest is 'soteria-50'"),
        (("--baseline", "soteria-50", "--mode", "delta"), "Expected --mode gradient"),
        (("--data", "pneumonia"), "nearest is 'pneumoniamnist'"),
        (("--synthetic", "cache"), "Expected --masking with --synthetic"),
        (("--images-from", "site.toml"), "Expected --records with --images-from"),
        (("--pictures", "a.png"), "Expected --records with --pictures"),
        (("--name", "../other"), "Expected --name"),
        (("--batches", "0"), "--batches"),
        (("--records", "there", "--masking", "joint"), "Expected --records without --masking"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_do(there: Path, arguments: tuple[str, ...], words: str) -> None:
    code, output = run("run", *arguments)

    assert code == 2
    assert words in " ".join(output.split())
    assert list(there.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--crafted", "loki-10"), "a shipped client refuses its network"),
        (("--crafted", "rtf-cumulative-mlp-k1024-difference-2"), "Expected an attack of one round"),
        (("--crafted", "traps"), "nearest is 'trap-weights'"),
        (("--crafted", "trap-weights", "--optimizer", "momentum"), "Expected --optimizer"),
        (("--crafted", "trap-weights", "--keep-images", "records/a.npz"), "outside of --out"),
        (("--crafted", "trap-weights", "--images", "0"), "--images"),
    ],
)
def test_record_refuses_what_no_client_would_train(there: Path, arguments: tuple[str, ...], words: str) -> None:
    code, output = run("record", *arguments, "--out", "records")

    assert code == 2
    assert words in " ".join(output.split())


def test_record_does_not_write_over_another(recorded: Path) -> None:
    code, output = run("record", "--crafted", CALIBRATED, "--out", recorded / "records")

    assert code == 2
    assert "new or empty folder" in " ".join(output.split())


def test_images_of_two_kinds_are_refused(recorded: Path) -> None:
    arguments = ("run", "--records", recorded / "records", "--data-root", recorded / "own.npz")

    assert run(*arguments)[0] == 2
    assert run(*arguments, "--data", "npz", "--images-from", "site.toml")[0] == 2
    assert run("run", "--records", recorded / "records", "--pictures", "a.png")[0] == 2
    assert run("run", "--records", recorded / "records", "--images-from", "none.toml")[0] == 2


def test_damaged_records_end_with_1_and_name_the_file(recorded: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("run", "--records", empty)[0] == 1
    for name in ("0-model.safetensors", "0-victim.safetensors"):
        (empty / name).write_bytes((recorded / "records" / name).read_bytes())
    code, output = run("run", "--records", empty, "--json")
    assert (code, json.loads(output)["status"]) == (1, "failed")
    assert "0-victim.json" in output
    (empty / "0-victim.json").write_bytes((recorded / "records" / "0-victim.json").read_bytes())
    (empty / "model.pt").touch()
    code, output = run("run", "--records", empty)
    assert code == 1
    assert "safetensors only" in " ".join(output.split())


def test_data_of_another_shape_end_with_1(recorded: Path, tmp_path: Path) -> None:
    stream = np.random.default_rng(0)
    images = stream.integers(0, 256, size=(60, 12, 12), dtype=np.uint8)
    np.savez(tmp_path / "other.npz", images=images, labels=np.arange(60) % 2)

    code, output = run("run", "--records", recorded / "records", "--data", "npz", "--data-root", tmp_path / "other.npz")

    assert code == 1
    assert "as the record says" in " ".join(output.split())


def test_table_without_results_ends_with_1(tmp_path: Path) -> None:
    assert run("table", tmp_path / "none")[0] == 1
    (tmp_path / "other.json").write_text('{"settings": {}, "result": {}}')
    code, output = run("table", tmp_path)
    assert code == 1
    assert "found none" in " ".join(output.split())
    (tmp_path / "other.json").write_text("{")
    assert "expected a finished result as JSON" in " ".join(run("table", tmp_path)[1].split())


def test_missing_extra_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r'pip install "aegis-fl\[attacks\]"'):
        require_extras_of_a_hospital()


def require_extras_of_a_hospital() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        require_extras("scipy")
