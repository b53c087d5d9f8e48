"""Fixtures for the tests and for the examples in the documentation."""

import csv
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads take the time from those they wait for
if "PYTEST_XDIST_WORKER" in os.environ:  # several at once: their threads would wait for one another
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from PIL import Image
from several import shrink_inputs
from torch import nn

from selftaught import Embedder, train
from selftaught.cli.main import main
from selftaught.files import write_atomically
from selftaught.networks import Preprocessing

TINY: dict[str, Any] = {"backbone": "small", "dim": 8, "batch_size": 8, "neighbors": 2, "workers": 0}
TINY |= {"precision": "32-true", "recipe": "official"}
"""Settings with which training takes a second, and gives the same on every CPU."""
OWN_INPUTS = Preprocessing(size=32, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
"""The inputs of :func:`own_backbone`."""

Call = Callable[..., tuple[int, str, str]]

shrink_inputs()


SLOW = tuple(f"test_{name}.py" for name in ("processes", "compile", "parallel", "commands", "export", "train"))
"""Files that take longest: begun last, one of them would keep a single core busy at the end."""


@pytest.hookimpl(trylast=True)  # after the order was drawn at random
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in SLOW)
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def own_backbone() -> nn.Module:
    """A network that counts as pretrained."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 16, 5, stride=4), nn.ReLU())


def draw_photos(folder: Path, classes: int, photos: int) -> Path:
    """Class folders of small noisy pictures, each class of its own color."""
    rng = np.random.default_rng(0)
    for number in range(classes):
        color = rng.integers(0, 255, 3)
        place = folder / f"class {number}"
        place.mkdir(parents=True)
        for photo in range(photos):
            pixels = (color + rng.normal(0, 40, (70, 90, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{photo}.jpg")
    return folder


def read_csv(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by the names of its columns."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def note_calls(patch: pytest.MonkeyPatch, module: str, function: str) -> list[str]:
    """The first argument of each call of a module's function from now on."""
    calls: list[str] = []
    real = vars(import_module(module))[function]

    def noted(first: object, *others: object, **options: object) -> Any:
        calls.append(str(first))
        return real(first, *others, **options)

    patch.setattr(f"{module}.{function}", noted)
    return calls


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What tests keep goes where their files are: decoded images, and what torch has compiled.

    That one is shared by the workers, but not with an earlier run: PyTorch would take code from it that was made for
    other vector instructions.
    """
    base = tmp_path_factory.getbasetemp()
    compiled = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SELFTAUGHT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(compiled))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_terminal() -> Iterator[None]:
    """Output is what a file would get, whatever terminal the tests are started from."""
    with pytest.MonkeyPatch.context() as patch:
        for choice in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
            patch.delenv(choice, raising=False)
        yield


@pytest.fixture(autouse=True)
def same_draws() -> None:
    """Every test draws the same numbers, in whatever order tests are run."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def quick_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have a dot for their curves, which take longer than their training; but not in the tests of training."""

    def dot(_start: object, _history: object, path: Path, _queries: int) -> None:
        write_atomically(path, lambda file: Image.new("L", (1, 1)).save(file, "PNG"))

    if request.path.name != "test_train.py":
        monkeypatch.setattr("selftaught.report.plot_curves", dot)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 images in 6 class folders."""
    return draw_photos(tmp_path_factory.mktemp("photos"), classes=6, photos=4)


@pytest.fixture(scope="session")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two epochs."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(photos, out=folder, epochs=2, eval=photos, quiet=True, **TINY)
    return folder


@pytest.fixture(scope="session")
def embedder(run: Path) -> Embedder:
    return Embedder.load(run, device="cpu")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command line in this process: exit code, standard output, standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["selftaught", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert isinstance(stopped.value.code, int)
        return stopped.value.code, captured.out, captured.err

    return run
