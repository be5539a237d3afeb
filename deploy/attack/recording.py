"""`aegis attack record`: an attack's network, trained by the shipped client, as a recorded update to be read again.

It shows that `aegis attack run --records` finds what is there.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import typer
from torch import nn

from attacks.attack import Attack, Plant
from attacks.registry import DEFAULT_FOLDER, find_attack, list_attacks
from attacks.threat_model import ThreatModel, grant
from attacks.victim import Hospital, Protection, send_delta
from attacks.world import World
from deploy.attack.choices import as_path, require_known
from deploy.attack.images import load_world
from federation.config import ModelConfig, TrainingConfig
from federation.datasets.image_set import DatasetInfo, ImageSet
from federation.datasets.loader import dataset_names
from federation.durable import write_durably
from federation.errors import ConfigurationError
from federation.models.cnn import Cnn
from federation.models.mlp import Mlp
from federation.parameters import read_parameters
from federation.preprocessing import to_unit_interval
from federation.randomness import numpy_stream
from federation.recorded_updates.folder import UpdateFolder
from federation.recorded_updates.metadata import Origin, RecordedData
from federation.records.answers import ModelUpdate

_VICTIM = "victim"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRequest:
    """What is planted, where, and who trains it.

    Attributes:
        attack: that crafts the network.
        data: name of the data set.
        data_root: of its files; None where it needs none.
        out: folder of the record.
        images: real images that the hospital trains on.
        plan: of its training.
        seed: of everything random.
        keep_images: NPZ for the images that were trained on and foreign ones; None for none.
    """

    attack: Attack
    data: str
    data_root: Path | None
    out: Path
    images: int
    plan: TrainingConfig
    seed: int
    keep_images: Path | None

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Return the request that the command line's options make.

        Raises:
            ConfigurationError: an option is wrong, or the attack's network is none that a shipped client accepts.
        """
        name = require_known("--crafted", given["crafted"], [attack.name for attack in list_attacks()])
        optimizer = require_known("--optimizer", given["optimizer"], ("sgd", "adam", "adamw"))
        out, kept = Path(given["out"]), as_path(given["keep_images"])
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigurationError(f"Expected --out as a new or empty folder, found {out} with something in it.")
        if kept is not None and (kept.suffix != ".npz" or kept.absolute().parent == out.absolute()):
            raise ConfigurationError(f"Expected --keep-images as an .npz file outside of --out, found {kept}.")
        plan = {
            "optimizer": optimizer,
            "learning-rate": given["learning_rate"],
            "batch-size": given["batch_size"],
            "local-epochs": given["epochs"],
            "device": "cpu",
        }
        return cls(
            attack=_require_plantable(find_attack(name, DEFAULT_FOLDER / "trained" / given["data"])),
            data=require_known("--data", given["data"], dataset_names()),
            data_root=as_path(given["data_root"]),
            out=out,
            images=given["images"],
            plan=TrainingConfig.model_validate(plan),
            seed=given["seed"],
            keep_images=kept,
        )


def record_exchange(request: RecordRequest, *, as_json: bool) -> None:
    """Craft, train and record, and print where it lies.

    Raises:
        ConfigurationError: the network that is planted is none that a shipped client accepts.
        DataError: images are missing, damaged or too few.
    """
    torch.set_num_threads(1)
    world = load_world(request.data, request.data_root, None)
    victims = world.draw_victims(request.images, numpy_stream(request.seed, "victims"))
    own, stream = world.real.take(victims), numpy_stream(request.seed, "server")
    view = grant(world.view(request.plan, stream), request.attack.needs, ThreatModel())
    plant = request.attack.begin(view).craft(0, 0)
    origin = Origin(
        run=request.attack.name,
        model=_describe_network(plant.network),
        data=RecordedData.of(world.info, name=request.data),
        training=request.plan,
    )
    facts = _record(request, plant, own, origin, world.info)
    if request.keep_images is not None:
        _keep_images(request.keep_images, own, world)
    alone = _count_alone(plant, own)
    if as_json:
        told = {"facts": str(facts), "images": len(own), "alone": alone, "model": origin.model.model_dump()}
        typer.echo(json.dumps(told, indent=1))
        return
    told_by = f"{request.attack.name} in {origin.model.name}"
    typer.echo(f"{facts}: {told_by}, {len(own)} images, {alone} alone in their place")


def _record(request: RecordRequest, plant: Plant, own: ImageSet, origin: Origin, info: DatasetInfo) -> Path:
    hospital = Hospital(images=own, info=info, plan=request.plan, protection=Protection())
    sent = send_delta(plant.network, hospital, seed=request.seed)
    folder = UpdateFolder(request.out, secret=True)
    update = {name: -value for name, value in sent.items()}
    answer = ModelUpdate(hospital_id=_VICTIM, model_version=0, examples=len(own), update=update)
    return folder.keep_update(answer, origin, folder.keep_model(0, read_parameters(plant.network)))


def _require_plantable(attack: Attack) -> Attack:
    needs = attack.needs
    if foreign := sorted(needs.controls - {"parameters"}):
        raise ConfigurationError(
            f"Expected an attack that changes parameters only, found {attack.name}, which needs {', '.join(foreign)}: "
            "a shipped client refuses its network."
        )
    if needs.rounds > 1:
        raise ConfigurationError(f"Expected an attack of one round, found {attack.name} with {needs.rounds}.")
    return attack


def _describe_network(network: nn.Module) -> ModelConfig:
    if isinstance(network, Mlp):
        return ModelConfig.model_validate({"name": "mlp", "hidden-units": network.hidden.out_features})
    if isinstance(network, Cnn):
        return ModelConfig(name="cnn")
    raise ConfigurationError(f"Expected a network of the names mlp or cnn, found {type(network).__name__}.")


def _count_alone(plant: Plant, own: ImageSet) -> int:
    places = plant.place(to_unit_interval(torch.from_numpy(np.array(own.images))))
    return int((np.unique(places[places >= 0], return_counts=True)[1] == 1).sum())


def _keep_images(path: Path, own: ImageSet, world: World) -> None:
    """Write the images that were trained on as a training split, and foreign ones as the other two."""
    half = len(world.auxiliary) // 2
    splits = {
        "train": own,
        "val": world.auxiliary.take(np.arange(half)),
        "test": world.auxiliary.take(np.arange(half, len(world.auxiliary))),
    }
    arrays: dict[str, Any] = {"class_names": np.array(world.info.class_names)}
    for name, split in splits.items():
        arrays |= {f"{name}_images": split.images.transpose(0, 2, 3, 1), f"{name}_labels": split.labels}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)
    write_durably(path, content.getvalue(), mode=0o600)
