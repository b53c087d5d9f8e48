"""Backbones by name, with their weights and their preprocessing."""

import difflib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import timm
import torch
from timm.data.config import resolve_model_data_config
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, UsageError, shown
from selftaught.networks.preprocessing import Preprocessing
from selftaught.networks.small import SmallNetwork
from selftaught.networks.weights import (
    OFFLINE_BACKBONE,
    hub_reachable,
    load_in_order,
    load_named,
    offline_weights,
    read_state,
)

DEFAULT_BACKBONE = "resnet50.tv_in1k"
SMALL_PREPROCESSING = Preprocessing(size=64, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@dataclass(frozen=True)
class Backbone:
    """A network from images to a feature map or vector, and what it needs to be used rightly."""

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
        name: "auto", "small" (this project's own, for training from scratch on small images), or any timm name.
        weights: "auto" (pretrained; from the hub, or from ``selftaught[offline]`` where no hub can be reached),
            "none", or the path of a safetensors or PyTorch file.
    """
    if name == "small":
        if weights not in ("auto", "none"):
            return _from_file(Backbone(name, SmallNetwork(), SMALL_PREPROCESSING, True, ""), Path(weights))
        return Backbone(name, SmallNetwork(), SMALL_PREPROCESSING, False, "random weights: 'small' has no others")
    if name != "auto" and not timm.is_model(name):
        raise _unknown_backbone(name)
    if weights == "none":
        return _timm(DEFAULT_BACKBONE if name == "auto" else name, False, "random weights, as asked for")
    if weights != "auto":
        return _from_file(_timm(DEFAULT_BACKBONE if name == "auto" else name, False, ""), Path(weights))
    wanted = DEFAULT_BACKBONE if name == "auto" else name
    if not timm.is_model_pretrained(wanted):
        raise UsageError(f"there are no pretrained weights for {wanted!r}: pass --weights FILE or --weights none")
    online = hub_reachable()
    offline = huggingface_hub.constants.HF_HUB_OFFLINE
    try:
        # Without the hub, weights that were fetched before are still found, and all others fail at once.
        huggingface_hub.constants.HF_HUB_OFFLINE = offline or not online
        return _timm(wanted, True, "pretrained weights from the model hub")
    except (OSError, RuntimeError, ValueError) as error:
        problem = f"the weights of {wanted!r} could not be fetched from the model hub" + (
            f" ({' '.join(str(error).split())[:150]})" if online else ", which cannot be reached"
        )
    finally:
        huggingface_hub.constants.HF_HUB_OFFLINE = offline
    file = offline_weights()
    if file is None or name not in ("auto", OFFLINE_BACKBONE):
        ways = "install selftaught[offline]" + ("" if name == "auto" else f" and use --backbone {OFFLINE_BACKBONE}")
        raise SelftaughtError(f"{problem}: {ways}, or pass --weights FILE, or train from scratch with --weights none")
    backbone = _timm(OFFLINE_BACKBONE, False, f"{problem}, so ImageNet weights from selftaught[offline] are used")
    assert isinstance(backbone.module, TimmBackbone)
    classifier = 2  # weight and bias, which come last
    load_in_order(backbone.module.model, dict(list(read_state(file).items())[:-classifier]))
    # The weights were made for pixels (x − 127) / 128.
    preprocessing = replace(backbone.preprocessing, mean=(127, 127, 127), std=(128, 128, 128), value_range=255)
    return replace(backbone, pretrained=True, preprocessing=preprocessing)


def _timm(name: str, pretrained: bool, reason: str) -> Backbone:
    model: Any = timm.create_model(name, pretrained=pretrained, num_classes=0)
    config = resolve_model_data_config(model)
    size = config["input_size"][1]
    fixed = bool(model.pretrained_cfg.get("fixed_input_size", False))
    preprocessing = Preprocessing(size=size, mean=config["mean"], std=config["std"], fixed_size=fixed)
    return Backbone(name, TimmBackbone(model, size), preprocessing, pretrained, reason)


def _from_file(backbone: Backbone, path: Path) -> Backbone:
    target: nn.Module = backbone.module.model if isinstance(backbone.module, TimmBackbone) else backbone.module
    load_named(target, read_state(path), path)
    return replace(backbone, pretrained=True, reason=f"weights from {shown(path)}")


def _unknown_backbone(name: str) -> UsageError:
    near = difflib.get_close_matches(name, ["auto", "small", *timm.list_models()], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "give 'auto', 'small' or a name of timm, such as 'resnet50'"
    return UsageError(f"unknown backbone {shown(name)!r}: {hint}")
