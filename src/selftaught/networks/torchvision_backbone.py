"""torchvision's classification models by name, without their classifiers."""

import contextlib
import itertools
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
import torchvision.models as zoo
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, one_line
from selftaught.networks.preprocessing import Preprocessing
from selftaught.networks.weights import answers, tensors_in

PREFIX = "torchvision."
SERVER = "https://download.pytorch.org"

POOLED_BY = {"mobilenet_v2": "classifier", "mnasnet": "classifier", "squeezenet": "classifier", "shufflenet": "fc"}
"""The child that follows the feature map, in families that have no ``avgpool`` and whose children run in a row."""

INCEPTIONS = ("googlenet", "inception_v3")
"""Networks with auxiliary classifiers, made for pixels within [−1, 1]."""

OLD_NAMES = (
    (r"(denselayer\d+\.(?:norm|conv))\.([12]\.)", r"\1\2"),
    (r"\.mlp\.linear_1\.", ".mlp.0."),
    (r"\.mlp\.linear_2\.", ".mlp.3."),
)
"""The old names of some layers in the published files of DenseNets and vision transformers."""


class TorchvisionBackbone(nn.Module):
    """A torchvision model's feature map n×C×H×W, or its own vector n×C if it has no map that is pooled once."""

    def __init__(self, name: str) -> None:
        super().__init__()
        options: dict[str, Any] = {}
        if name in INCEPTIONS:
            options = {"aux_logits": False, "init_weights": False}
        elif name.startswith("vit_"):
            options = {"image_size": torchvision_preprocessing(name).size}
        self.model = _without_classifier(name, zoo.get_model(name, weights=None, **options))

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.model(images)
        return x


def torchvision_names() -> list[str]:
    """Names of torchvision's classification models, without the prefix."""
    return list(zoo.list_models(module=zoo))


def torchvision_preprocessing(name: str) -> Preprocessing:
    """The preprocessing that a model's default weights were made for.

    Example:
        >>> torchvision_preprocessing("efficientnet_b1").size
        240
    """
    transforms = zoo.get_model_weights(name).DEFAULT.transforms()
    half = (0.5, 0.5, 0.5)
    return Preprocessing(
        size=transforms.crop_size[0],
        mean=half if name in INCEPTIONS else transforms.mean,
        std=half if name in INCEPTIONS else transforms.std,
        fixed_size=name.startswith(("vit_", "maxvit_")),
    )


def kept_file(name: str) -> Path:
    """The file of a model's default weights after their download."""
    return Path(torch.hub.get_dir(), "checkpoints", Path(urlparse(zoo.get_model_weights(name).DEFAULT.url).path).name)


def fetch(name: str) -> dict[str, Tensor]:
    """A model's default weights: from torch hub's folder, or downloaded into it."""
    weights = zoo.get_model_weights(name).DEFAULT
    problem = f"the weights of {PREFIX + name!r} could not be fetched from {SERVER}"
    ways = "pass --weights FILE, or train from scratch with --weights none"
    if not kept_file(name).exists() and not answers(SERVER):
        raise SelftaughtError(f"{problem}, which cannot be reached: {ways}")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # torch hub prints a line about the download
            return tensors_in(weights.get_state_dict(progress=True, check_hash=True, weights_only=True))
    except Exception as error:  # errors of the network, the disk, or a damaged file
        raise SelftaughtError(f"{problem} ({one_line(error, 150)}): {ways}") from None


def rename_layers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A published state dict under the names that layers have today."""
    result = {}
    for name, tensor in state.items():
        for old, new in OLD_NAMES:
            name = re.sub(old, new, name)
        result[name] = tensor
    return result


def _without_classifier(name: str, model: nn.Module) -> nn.Module:
    children = dict(model.named_children())
    follower = next((end for start, end in POOLED_BY.items() if name.startswith(start)), "avgpool")
    if follower in children:
        before = itertools.takewhile(lambda child: child[0] != follower, children.items())
        return nn.Sequential(OrderedDict(before))
    *_, classifier = children
    setattr(model, classifier, nn.Identity())
    return model
