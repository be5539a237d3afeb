"""The options of `aegis cache build`, each with its one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[Path, typer.Argument(help="Folder of the cache.")]
Policy = Annotated[Path | None, typer.Option(help="The hospital's site.toml; without it a hospital is simulated.")]
Assign = Annotated[list[str] | None, typer.Option("--set", help="table.key=value of a simulated hospital, repeatable.")]
App = Annotated[Path, typer.Option(help="Folder of the Flower app, for a simulated hospital.")]
Hospital = Annotated[int, typer.Option(help="Number of the simulated hospital, from 0.", min=0)]
Hospitals = Annotated[int, typer.Option(help="Number of simulated hospitals.", min=1)]
Every = Annotated[
    bool, typer.Option("--every", help="Build for all --hospitals, each in a subfolder of FOLDER named by its id.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
Sheet = Annotated[
    Path | None, typer.Option(help="Write a PNG of real beside synthetic images there; it shows patients' images.")
]
Kind = Annotated[str, typer.Option(help="diffusion, stable-diffusion, gaussian, folder or phantom.")]
Weights = Annotated[Path | None, typer.Option(help="Trained generator or images; without: train or fit one.")]
ArePublic = Annotated[bool, typer.Option("--weights-are-public", help="No private image had a part in --weights.")]
Adapt = Annotated[bool, typer.Option("--adapt", help="Train --weights further on the permitted images.")]
DpEpsilon = Annotated[float, typer.Option(help="Train by DP-SGD with this epsilon; 0: without differential privacy.")]
Dp = Annotated[list[str] | None, typer.Option(help="steps, batch, clip-norm or delta of --dp-epsilon, as key=value.")]
TrainMinutes = Annotated[float, typer.Option(help="Budget for training, in minutes of one core.")]
Steps = Annotated[int, typer.Option(help="Steps of diffusion; 0: the generator's own.")]
Unchecked = Annotated[
    bool, typer.Option("--unchecked", help="Do not look for copies of training images, which would use these images.")
]
Prompts = Annotated[str, typer.Option(help="Modality with prompts, or a TOML file of your own; default: --modality.")]
Scheduler = Annotated[str, typer.Option(help="Scheduler of stable-diffusion, by its name in diffusers.")]
DrawAtOnce = Annotated[int, typer.Option(help="Images stable-diffusion makes at a time; 0: its own.")]
Modality = Annotated[str, typer.Option(help="What kind of images these are, for the record.")]
Images = Annotated[int, typer.Option(help="M, how many synthetic images.")]
Labels = Annotated[str, typer.Option(help="as-train, smoothed or balanced.")]
Brightness = Annotated[str, typer.Option(help="as-generated, or aim: at the private distribution.")]
MatchMoments = Annotated[
    bool, typer.Option("--match-moments", help="Give images mean and covariance of the permitted ones; is training.")
]
Pairing = Annotated[str, typer.Option("--filter", help="none, nearest or optimal.")]
Features = Annotated[str, typer.Option(help="pixels, task, a model.safetensors, or weights of EfficientNet-Lite0.")]
PassRate = Annotated[float, typer.Option(help="Share of held-out real images that would pass.")]
Attempts = Annotated[float, typer.Option(help="Candidates per wanted image at most.")]
LargestKs = Annotated[float, typer.Option(help="Largest KS distance of brightness and projections.")]
LeastOverlap = Annotated[float, typer.Option(help="Least overlap of brightness bins, relative to real images.")]
BatchSize = Annotated[int, typer.Option(help="Candidates at a time.")]
Seed = Annotated[int, typer.Option(help="Decides every image.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an unfinished build.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Throw an unfinished build away.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be built.")]
