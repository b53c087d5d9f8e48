"""The origin of numbers: command, device, versions, and settings that differ from the recipe's."""

import platform
import shlex
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any

import torch

import selftaught
from selftaught.devices import available_cores, choose_device
from selftaught.errors import printable
from selftaught.learners import make_settings
from selftaught.reproduce.request import Request

PACKAGES = ("torch", "torchvision", "timm", "numpy")


def command(request: Request) -> str:
    """The command that continues the table, or makes it again."""
    words = ["selftaught", "reproduce", request.table.name]
    if len(request.rows) < sum(row.settings is not None for row in request.table.rows):
        words += [word for row in request.rows for word in ("--rows", row.name)]
    if request.quick is None:
        words += ["--data", printable(request.data)]
    words += ["--out", printable(request.out), "--seeds", str(request.seeds)]
    for name, value in (("--epochs", request.epochs), ("--backbone", request.backbone)):
        words += [] if value is None else [name, str(value)]
    words += [] if request.device == "auto" else ["--device", request.device]
    return shlex.join(words + (["--quick"] if request.quick else []))


def device_name(device: str) -> str:
    """The device in words, such as a GPU's name."""
    chosen = choose_device(device)
    if chosen.type == "cuda":
        return torch.cuda.get_device_name(chosen)
    return f"{chosen.type} ({platform.machine()}, {available_cores()} cores)"


def versions() -> dict[str, str]:
    own = {"selftaught": selftaught.__version__, "python": platform.python_version()}
    return own | {name: version(name) for name in PACKAGES}


def epochs(request: Request) -> list[int]:
    """The numbers of epochs that the rows are trained for."""
    cases = [(row, dataset) for row in request.rows for dataset in request.table.datasets(row)]
    return sorted({make_settings(**request.settings(*case)).epochs for case in cases})


def differences(request: Request) -> dict[str, dict[str, list[Any]]]:
    """The settings that the command's options changed: the recipes' values, and the values used."""
    usual = replace(request, epochs=None, backbone=None, quick=None)
    found: dict[str, dict[str, list[Any]]] = {}
    for row in request.rows:
        for dataset in request.table.datasets(row):
            before = asdict(make_settings(**usual.settings(row, dataset)))
            after = asdict(make_settings(**request.settings(row, dataset)))
            for name in (name for name in before if before[name] != after[name]):
                sides = found.setdefault(name, {"recipe": [], "here": []})
                for side, value in (("recipe", before[name]), ("here", after[name])):
                    sides[side] += [] if value in sides[side] else [value]
    return found
