"""The inputs of a job: images, weights, packages. If one is missing, an error says what to get."""

from collections.abc import Mapping
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

import timm

from selftaught.data import benchmark_of, find_benchmark, open_images
from selftaught.errors import UsageError, printable
from selftaught.files import plain_path
from selftaught.learners import METHODS
from selftaught.networks import ENSEMBLE, OFFLINE_BACKBONE, PUBLISHED, weights_at_hand
from selftaught.reproduce.paper import PARTNERS
from selftaught.reproduce.quick import EMBEDDED
from selftaught.reproduce.table import FOLDER, Row, Uses

PHOTOS = "photos"
"""The place of the embedded data in the output folder."""
WEIGHT_FILES = {"googlenet": ("npz", "pth", "safetensors"), "bn_inception": ("pth", "safetensors")}
"""Backbones whose weights are files that the user must get, and the kinds of file."""
SWAV_PUBLISHED = "a ResNet50 that SwAV's authors published, such as swav_800ep_pretrain.pth.tar, renamed"


def needed_benchmarks(uses: Uses, dataset: str) -> tuple[str, ...]:
    """The data sets of the paper that a row needs."""
    if dataset in (FOLDER, EMBEDDED):
        return ()
    return (dataset, PARTNERS[dataset]) if uses == "both" else (dataset,)


def image_sources(uses: Uses, dataset: str, data: Path, out: Path, share: int = 50) -> dict[str, str]:
    """The arguments of ``train`` that name images."""
    if dataset in (FOLDER, EMBEDDED):
        if dataset == FOLDER and not all((data / part).is_dir() for part in ("train", "test")):
            raise UsageError(
                f"{printable(data)} has no train/ and test/ with class folders in them: name a folder by --data"
            )
        everything = f"folder:{out / PHOTOS if dataset == EMBEDDED else data}"
        labeled, unlabeled = (f"{everything}:train-{part}{'' if share == 50 else share}" for part in "ab")
    else:
        everything = labeled = benchmark_source(dataset, data)
        unlabeled = benchmark_source(PARTNERS[dataset], data) if uses == "both" else ""
    if uses == "both":
        return {"labeled": labeled, "unlabeled": unlabeled, "eval": everything}
    return {"images": labeled if uses == "labeled" else everything, "eval": everything}


def benchmark_source(name: str, data: Path) -> str:
    """A data set of the paper, anywhere below ``data``."""
    root = find_benchmark(name, data)
    if root is None:
        benchmark = benchmark_of(name)
        raise UsageError(f"{benchmark.title} is not in {printable(data)}: get {benchmark.origin}")
    return f"{name}:{root}"


def weights_for(row: Row, backbone: str, data: Path) -> str:
    """ "auto", "none", or the file that must lie in ``data/weights``."""
    if row.weights == "none":
        return "none"
    if row.weights == "swav":
        if not backbone.startswith("resnet50"):
            raise UsageError(f"SwAV's weights are a ResNet50's, not those of {printable(backbone)}")
        return _weights_file("swav_resnet50", ("pth", "safetensors"), data)
    backbone = backbone.removesuffix(ENSEMBLE)
    if backbone in WEIGHT_FILES:
        return _weights_file(backbone, WEIGHT_FILES[backbone], data)
    by_name = backbone not in ("auto", OFFLINE_BACKBONE) and timm.is_model(backbone.partition(".")[0])
    if by_name and not weights_at_hand(backbone):
        raise UsageError(
            f"the ImageNet weights of {printable(backbone)} are not on this machine and the model hub cannot be "
            "reached: fetch them once where it can"
        )
    return "auto"


def check_packages(row: Row) -> None:
    """Raise an error if a row's method needs a package that is not installed."""
    assert row.settings is not None
    needed = row.uses == "both" or METHODS[row.settings["method"]].packages
    if needed and util.find_spec("pytorch_metric_learning") is None:
        raise UsageError(f"{row.label} needs pytorch-metric-learning: pip install 'selftaught[research]'")


def count_images(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The number of images in each source to train on; opens the test images too."""
    splits = {"images": "train", "labeled": "train", "unlabeled": "all", "eval": "test"}
    counts = {name: _count(arguments[name], split) for name, split in splits.items() if name in arguments}
    return {name: count for name, count in counts.items() if name != "eval"}


@cache
def _count(source: str, split: str) -> int:
    return len(open_images(source, split))


def _weights_file(name: str, kinds: tuple[str, ...], data: Path) -> str:
    for kind in kinds:
        file = data / "weights" / f"{name}.{kind}"
        if file.is_file():
            return str(plain_path(file))
    others = " or ".join(f".{kind}" for kind in kinds[1:])
    raise UsageError(
        f"there is no weights file {printable(data / 'weights' / name)}.{kinds[0]} (or {others}): "
        f"get {PUBLISHED.get(name, SWAV_PUBLISHED)}"
    )
