"""The options of `aegis attack run` and `record`, each with its one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Records = Annotated[Path | None, typer.Option(help="Folder of recorded updates; without it hospitals are simulated.")]
ImagesFrom = Annotated[Path | None, typer.Option(help="The hospital's site.toml: whose images the updates are of.")]
Data = Annotated[str | None, typer.Option(help="Name of a data set; a simulation takes phantom without it.")]
DataRoot = Annotated[Path | None, typer.Option(help="Folder or file of --data; without it MedMNIST is downloaded.")]
Pictures = Annotated[Path | None, typer.Option(help="With --records: write a PNG there; it shows patients' images.")]
Attack = Annotated[list[str] | None, typer.Option(help="Name of an attack, repeatable; default: those for --mode.")]
Masking = Annotated[str | None, typer.Option(help="Mode of masking: interleaved, joint, lambda or sequential.")]
Size = Annotated[str | None, typer.Option(help="M, synthetic images, or auto; with --masking.")]
Capacity = Annotated[int | None, typer.Option(help="k, bins that --size auto reckons with.", min=2)]
Mechanism = Annotated[str, typer.Option(help="none, dp-sgd or update-gaussian; with --mode delta.")]
Epsilon = Annotated[float | None, typer.Option(help="Of one release by --mechanism, at delta 1e-5.")]
Baseline = Annotated[list[str] | None, typer.Option(help="Defence of another paper, repeatable; see list.")]
Mode = Annotated[str, typer.Option(help="What leaves: gradient, or delta of the shipped client's training.")]
Optimizer = Annotated[str, typer.Option(help="sgd, adam or adamw, at a rate of 0.001.")]
Epochs = Annotated[int, typer.Option(help="Local epochs.", min=1)]
Batches = Annotated[int, typer.Option(help="Hospitals attacked per seed, 64 images each.", min=1)]
Seeds = Annotated[int, typer.Option(help="How many seeds.", min=1)]
Synthetic = Annotated[
    Path | None, typer.Option(help="Folder of a cache to draw synthetic images from; default: held-out real images.")
]
Name = Annotated[str, typer.Option(help="Finished cells are kept in runs/attacks/NAME.")]
Fresh = Annotated[bool, typer.Option("--fresh/--resume", help="Forget finished cells of this name, or go on.")]
Out = Annotated[Path | None, typer.Option(help="Folder for tables, plot and pictures.")]

Crafted = Annotated[str, typer.Option(help="Name of an attack that changes parameters only.")]
RecordedData = Annotated[str, typer.Option("--data", help="Name of a data set.")]
RecordOut = Annotated[Path, typer.Option(help="New folder for the recorded update.")]
Images = Annotated[int, typer.Option(help="Real images that the hospital trains on.", min=1)]
BatchSize = Annotated[int, typer.Option(help="Images per local step.", min=1)]
LearningRate = Annotated[float, typer.Option(help="Of local training.", min=1e-12)]
Seed = Annotated[int, typer.Option(help="Decides everything random.")]
KeepImages = Annotated[
    Path | None, typer.Option(help="NPZ for the images that were trained on, to compare with: --data npz.")
]
Folders = Annotated[list[Path], typer.Argument(help="Folders of finished results.")]
