"""Speed of training: ours, between what the networks alone allow and a loop in the style of the released code.

    python benchmarks/training.py [--data PHOTOS] [--device cpu] [--backbones resnet18,resnet50] [--quick] [--json FILE]

- "ceiling": student forward and backward and teacher forward on random input that is already on the device, with the
  settings of our run (on a GPU bfloat16, channels_last, compiled) and no loss, optimizer or input. Its epoch is as many
  such steps, and one forward pass over all images. It is timed before and after our run.
- "authors' style": see ``authors.py``; one epoch. Of a long one only a part is run and the rest extrapolated.
- "ours": ``selftaught.training.train`` from files, by its own clock: the median of all epochs but the first, which also
  decodes all files and compiles. What an epoch does beside its steps is all in it, checkpoint and signals included.

A view is one of the two random crops of an image in a step. Weights are random. Then each piece of ours, timed alone.
Without ``--data`` it draws photos of its own; on a CPU it trains the demo's network on them.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from authors import Authors
from pieces import Pieces

from selftaught.cli.demo import SETTINGS as DEMO
from selftaught.data import ImageFolder, find_images, make_products
from selftaught.devices import available_cores
from selftaught.errors import Interrupted, SelftaughtError
from selftaught.learners import STMLSettings
from selftaught.learners import make_settings as settings_of
from selftaught.networks import build_backbone
from selftaught.training import train
from selftaught.training.automatic import resolve

BATCH = 120
JUDGED = "resnet50"
STEPS_OF_CEILING, EPOCHS_OF_CEILING = 0.90, 0.85
TIMES_AUTHORS, TIMES_AUTHORS_ON_CPU = 6.0, 2.0
LOSS_SHARE, UPDATE_SHARE = 0.04, 0.06


@dataclass(frozen=True)
class Speed:
    """Seconds of an epoch's steps, and of the whole epoch."""

    steps: float
    epoch: float


@dataclass(frozen=True)
class Result:
    """All that was measured with one backbone."""

    backbone: str
    size: int
    images: int
    batch: int
    steps: int
    ceiling: Speed
    authors: Speed
    authors_part: float
    ours: Speed
    of_step: dict[str, float]
    """Milliseconds."""
    of_epoch: dict[str, float]
    epochs: list[float]
    """Seconds of each of our epochs, the first one included."""
    first_epoch: float
    """Seconds from the start of the command to the end of the first epoch: listing, decoding, compiling."""


def changes_for(backbone: str, images: int) -> dict[str, Any]:
    """The settings of a run: the demo's for its network, the paper's for all others."""
    if backbone == "small":
        changes = DEMO | {"freeze_batch_norm": False}
    else:
        # Random weights are only to be timed: at this rate they stay as good as they are.
        changes = {"recipe": "official", "batch_size": BATCH, "neighbors": 5, "dim": 512, "freeze_batch_norm": True}
        changes |= {"lr": 1e-6, "head_lr": 1e-6, "crop_scale": (0.16, 1.0)}
    size = min(changes["batch_size"], images // 2) // changes["neighbors"] * changes["neighbors"]
    return changes | {"backbone": backbone, "weights": "none", "batch_size": size}


def run_ours(folder: Path, out: Path, changes: dict[str, Any]) -> tuple[Speed, list[float], float]:
    """Train, and read what the run noted about its epochs; with the seconds until the first of them was over."""
    began = time.perf_counter()
    train(folder, out=out, quiet=True, **changes)
    whole = time.perf_counter() - began
    rows = [json.loads(line) for line in (out / "timing.jsonl").read_text().splitlines()]
    later = rows[1:]
    speed = Speed(*(statistics.median(row[name] for row in later) for name in ("step_seconds", "seconds")))
    return speed, [row["seconds"] for row in rows], whole - sum(row["seconds"] for row in later)


def measure(
    name: str, images: ImageFolder, labeled: ImageFolder | None, place: Path, options: argparse.Namespace
) -> Result:
    """All sides with one backbone."""
    device = torch.device(options.device)
    changes = changes_for(name, len(images)) | {"workers": options.workers, "device": options.device}
    changes |= {"epochs": options.epochs} | ({"compile": True} if device.type == "cuda" else {})
    backbone = build_backbone(name, "none")
    chosen, _ = resolve(settings_of(**changes), len(images), backbone, device)
    assert isinstance(chosen, STMLSettings)
    assert chosen.batch_size is not None
    steps = len(images) // chosen.batch_size

    paths = [images.path(i) for i in range(len(images))]
    authors = Authors(name, paths, changes, options.workers, device)
    theirs = authors.epoch(4 if options.quick else 60)
    del authors
    _give_back(device)
    calls, rounds = (2, 1) if options.quick else (10, 3)
    pieces = Pieces(backbone, chosen, images, device, calls, rounds)
    before = pieces.ceiling()
    ours, epochs, first = run_ours(images.root, place / name, changes)
    for_step, for_image = (statistics.mean(pair) for pair in zip(before, pieces.ceiling(), strict=True))
    result = Result(
        backbone=name,
        size=backbone.preprocessing.size,
        images=len(images),
        batch=chosen.batch_size,
        steps=steps,
        ceiling=Speed(steps * for_step, steps * for_step + len(images) * for_image),
        authors=Speed(theirs.steps, theirs.steps + theirs.neighbors),
        authors_part=theirs.part,
        ours=ours,
        of_step=pieces.of_step(),
        of_epoch=pieces.of_epoch(labeled),
        epochs=epochs,
        first_epoch=first,
    )
    del pieces
    torch._dynamo.reset()
    _give_back(device)
    return result


def report(result: Result) -> None:
    views = 2 * result.batch * result.steps
    part = "" if result.authors_part == 1 else f" ({result.authors_part:.0%} of an epoch run, the rest extrapolated)"
    print(
        f"\n{result.backbone} at {result.size} px: {result.images} images, {result.steps} steps an epoch, each of "
        f"{result.batch} images in 2 views"
    )
    print(f"{'':>16} {'views/s in steps':>17} {'in whole epochs':>16} {'s an epoch':>11}")
    for label, speed in (("ceiling", result.ceiling), ("authors' style", result.authors), ("ours", result.ours)):
        note = part if label == "authors' style" else ""
        print(f"{label:>16} {views / speed.steps:>17,.0f} {views / speed.epoch:>16,.0f} {speed.epoch:>11.2f}{note}")
    print(
        f"  ours: {result.ceiling.steps / result.ours.steps:.1%} of the ceiling in steps, "
        f"{result.ceiling.epoch / result.ours.epoch:.1%} in whole epochs, "
        f"{result.authors.epoch / result.ours.epoch:.1f}× the authors' style in whole epochs; "
        f"from the command to the end of the first epoch {result.first_epoch:.1f} s"
    )
    print("  seconds of each epoch of ours: " + ", ".join(f"{seconds:.2f}" for seconds in result.epochs))
    step = 1000 * result.ours.steps / result.steps
    print(f"  a step of ours takes {step:.2f} ms; alone, its pieces take " + _listed(result.of_step, step))
    between = 1000 * (result.ours.epoch - result.ours.steps)
    print(f"  between the steps of two epochs {between:.0f} ms; alone: " + _listed(result.of_epoch), flush=True)


def verdicts(results: list[Result], device: str) -> list[tuple[bool, str]]:
    found = []
    for result in results:
        times = result.authors.epoch / result.ours.epoch
        wanted = TIMES_AUTHORS if device == "cuda" else TIMES_AUTHORS_ON_CPU
        if device != "cuda" or result.backbone == JUDGED:
            words = f"at least {wanted:.0f}× the authors' style in whole epochs, {result.backbone}: {times:.1f}×"
            found.append((times >= wanted, words))
        if device != "cuda" or result.backbone != JUDGED:
            continue
        step = 1000 * result.ours.steps / result.steps
        shares = (result.ceiling.steps / result.ours.steps, result.ceiling.epoch / result.ours.epoch)
        for what, share, least in zip(
            ("steps", "whole epochs"), shares, (STEPS_OF_CEILING, EPOCHS_OF_CEILING), strict=True
        ):
            found.append((share >= least, f"{what} at {least:.0%} of the ceiling or better: {share:.1%}"))
        loss = result.of_step["similarity + loss"] / step
        update = (result.of_step["optimizer"] + result.of_step["teacher update"]) / step
        found.append((loss < LOSS_SHARE, f"similarity + loss under {LOSS_SHARE:.0%} of a step: {loss:.1%}"))
        found.append((update < UPDATE_SHARE, f"optimizer + teacher update under {UPDATE_SHARE:.0%}: {update:.1%}"))
    return found


def photos(options: argparse.Namespace, place: Path) -> tuple[ImageFolder, ImageFolder | None]:
    """The images to train on, and those to evaluate on."""
    if options.data is None:
        size = 96 if options.backbones == ["small"] else 256
        products, per_product = (24, 8) if options.quick else (240, 8)
        training, unseen = make_products(place / "photos", products=products, photos=per_product, size=size)
        return find_images(training), find_images(unseen)
    images = find_images(options.data)
    test = options.data / "test"
    labeled = find_images(test) if test.is_dir() else images
    with suppress(SelftaughtError):
        labeled.labels()
        return images, labeled
    return images, None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The speed of training, against its ceiling and the authors' style.")
    parser.add_argument("--data", type=Path, help="folder of photos; drawn on the spot without it")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--backbones", help="names, separated by commas")
    parser.add_argument("--epochs", type=int, help="epochs of our run, at least 2")
    parser.add_argument("--workers", type=int, default=available_cores(), help="processes that decode, on all sides")
    parser.add_argument("--quick", action="store_true", help="few steps, to see that it works")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    options = parser.parse_args(arguments)
    names = options.backbones or ("resnet18,googlenet,resnet50" if options.device == "cuda" else "small")
    options.backbones = names.split(",")
    options.epochs = max(2, options.epochs or (3 if options.quick else 6))
    machine = torch.cuda.get_device_name() if options.device == "cuda" else platform.processor() or platform.machine()
    print(f"torch {torch.__version__} on {machine}, {available_cores()} cores, {options.workers} workers", flush=True)
    torch._dynamo.config.recompile_limit = 64  # networks of several sides, in several shapes, share the compiler
    results, failed = [], []
    with TemporaryDirectory() as temporary:
        place = Path(temporary)
        os.environ["SELFTAUGHT_CACHE"] = str(place / "cache")
        images, labeled = photos(options, place)
        for name in options.backbones:
            try:
                results.append(measure(name, images, labeled, place, options))
                report(results[-1])
            except Interrupted:
                return 130
            except Exception:  # the other backbones can still be measured
                traceback.print_exc()
                failed.append(name)
    found = verdicts(results, options.device) + [(False, f"{name} could not be measured") for name in failed]
    print("\n" + "\n".join(f"{'PASS' if good else 'FAIL'} {words}" for good, words in found))
    if options.json is not None:
        content = {
            "machine": machine,
            "device": options.device,
            "torch": torch.__version__,
            "workers": options.workers,
            "results": [asdict(result) for result in results],
            "verdicts": [{"pass": good, "what": words} for good, words in found],
        }
        options.json.write_text(json.dumps(content, indent=2) + "\n")
    return 1 if failed else 0


def _listed(taken: dict[str, float], whole: float | None = None) -> str:
    """Pieces in milliseconds, with their share of a whole."""
    parts = [f"{name} {ms:.2f} ms" + (f" ({ms / whole:.1%})" if whole else "") for name, ms in taken.items()]
    return ", ".join(parts)


def _give_back(device: torch.device) -> None:
    """Free the memory of a side that is done."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
