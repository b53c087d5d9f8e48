"""The two files of a model: its weights, and the description from which its network is built again."""

import hashlib
import json
import os
import reprlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import safetensors
import timm
import torch
import torchvision
from safetensors.torch import load_file, save
from torch import nn

import selftaught
from selftaught.errors import SelftaughtError, UsageError, one_line, printable, raise_if_out_of_memory, suggest
from selftaught.files import open_regular, read_file, read_json, write_atomically, write_json
from selftaught.networks import (
    HEADS,
    EmbeddingNetwork,
    Encoder,
    Preprocessing,
    build_backbone,
    is_factory,
    near_backbones,
    own_names,
)

FORMAT = 1
METRIC_NAMES = ("euclidean", "cosine")
"""How vectors are compared: as they are, or by direction; then the model gives vectors of length 1."""
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
DEFAULTS = {"head": "linear", "pooling": "avg+max", "mirror": False, "scales": 1}
"""The values of models that were written before their files named them."""
KINDS: dict[str, type] = {
    "backbone": str,
    "own_backbone": bool,
    "dim": int,
    "head": str,
    "pooling": str,
    "mirror": bool,
    "scales": int,
    "preprocessing": dict,
}
LIMITS = {"dim": (1, 2**16), "scales": (1, 3), "size": (1, 2**13), "resize": (0, 2**13), "use_size": (0, 2**13)}
"""The ranges of numbers: a file with others does not describe a model, and building it might take all memory."""


def describe(
    network: EmbeddingNetwork, *, backbone: str, own_backbone: bool, dim: int, head: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """The content of ``model.json``: all that is needed to use the weights, and how they were made."""
    return {
        "format": FORMAT,
        "backbone": backbone,
        "own_backbone": own_backbone,
        "dim": dim,
        "head": head,
        "pooling": network.encoder.pooling,
        "metric": "cosine" if network.normalize else "euclidean",
        "preprocessing": asdict(network.encoder.preprocessing),
        "recipe": settings["recipe"],
        "settings": settings,
        "versions": {
            "selftaught": selftaught.__version__,
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "timm": timm.__version__,
        },
    }


def write_model(folder: Path, network: EmbeddingNetwork, description: dict[str, Any]) -> None:
    """Write ``model.safetensors`` and ``model.json``; an older pair there is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    write_atomically(folder / WEIGHTS, save(state, metadata={"format": "pt"}))
    write_json(folder / DESCRIPTION, description)


def fingerprint(about: dict[str, Any], module: nn.Module) -> str:
    """A digest of a description and of a module's weights."""
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def read_description(folder: Path) -> dict[str, Any]:
    """The description of the model in a folder, with all its values of the right kind."""
    file = folder / DESCRIPTION
    content = read_json(file)
    if content is None:
        read_file(file)  # raises an error if it cannot be read
    if content is None or not {"format", "metric"} <= set(content):
        raise SelftaughtError(f"{printable(file)} is damaged: it does not describe a model")
    description = DEFAULTS | content
    if description["format"] != FORMAT or description["metric"] not in METRIC_NAMES or set(KINDS) - set(description):
        raise SelftaughtError(
            f"{printable(file)} was written by another version of selftaught, which this one cannot read"
        )
    sizes = ("size", "resize", "use_size")
    preprocessing = description["preprocessing"] if isinstance(description["preprocessing"], dict) else {}
    values: list[tuple[str, type, Any]] = [(name, kind, description[name]) for name, kind in KINDS.items()]
    values += [(name, int, preprocessing[name]) for name in sizes if name in preprocessing]
    for name, kind, value in values:
        low, high = LIMITS.get(name, (0, 1))
        if type(value) is not kind or (isinstance(value, int) and not low <= value <= high):
            raise _no_model(file, f"{name} is {reprlib.repr(value)}")
    if ("epoch" in description) != ("epochs" in description):
        raise _no_model(file, "epoch and epochs belong together")
    return description


def refuse_code(name: str, folder: Path) -> None:
    """Raise an error if a downloaded model names a function to import as its backbone: the user did not ask for it."""
    if not (folder / DESCRIPTION).exists():
        raise UsageError(f"the downloaded {printable(name)} holds no finished model")
    backbone = read_description(folder)["backbone"]
    if is_factory(backbone):
        raise UsageError(
            f"the downloaded model {printable(name)} names {printable(backbone)} as its backbone, and no code is run "
            "because a download says so: load it with Embedder.load(name, backbone=module), with a module you trust"
        )


def build_network(folder: Path, description: dict[str, Any], backbone: nn.Module | None) -> EmbeddingNetwork:
    """The network of a description, with the weights that lie beside it."""
    name = description["backbone"]
    if backbone is None and description["own_backbone"]:
        raise UsageError(
            f"the model in {printable(folder)} was trained with a backbone of your own, {printable(name)}: "
            "load it from Python with Embedder.load(run, backbone=module)"
        )
    if backbone is None and is_factory(name):  # if that fails, the description is not to blame
        backbone = build_backbone(name, "none").module
    try:
        preprocessing = Preprocessing(**description["preprocessing"])
        module = backbone or build_backbone(name, "none").module
        encoder = Encoder(module, preprocessing, pooling=description["pooling"])
        head = HEADS[description["head"]](encoder.features, description["dim"])
        network = EmbeddingNetwork(encoder, {"f": head}, normalize=description["metric"] == "cosine")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise_if_out_of_memory(error)
        raise _no_model(folder / DESCRIPTION, str(error)) from None
    file = folder / WEIGHTS
    try:
        with open_regular(file):
            network.load_state_dict(own_names(load_file(file), network))
    except (OSError, safetensors.SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise_if_out_of_memory(error)
        raise SelftaughtError(f"cannot load {printable(file)}: {one_line(error)}") from None
    for key, tensor in network.state_dict().items():
        if not tensor.isfinite().all():  # every vector would be infinite or undefined, too
            raise SelftaughtError(f"{printable(file)} is damaged: {key} holds values that are infinite or undefined")
    return network


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder of a model, or of a run that has no model yet; raises an error if it is neither."""
    place = Path(folder)
    if not place.is_dir():
        near = [] if len(place.parts) > 1 else near_backbones(place.name)
        end = f": {suggest(near)}" if near else ""
        raise UsageError(f"there is no run or index {printable(place)}, and no backbone of that name{end}")
    if not (place / DESCRIPTION).exists() and not (place / "settings.json").is_file():
        what = "a run, or a backbone's name such as tf_efficientnet_lite0"
        raise UsageError(f"there is no model in {printable(place)}: give {what}")
    return place


def _no_model(file: Path, reason: str) -> SelftaughtError:
    return SelftaughtError(f"{printable(file)} does not describe a model: {one_line(reason)}")
