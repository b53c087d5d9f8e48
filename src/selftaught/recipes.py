"""The settings that all methods share, and the paper's combinations of settings by name."""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from selftaught.errors import UsageError, printable, unknown
from selftaught.networks import USE_SCALE

NEIGHBORS = 5
"""Images per query, as in the paper."""
LARGEST = 1_000_000
"""The largest sensible size, rate or width; larger ones are mistakes."""


@dataclass(frozen=True)
class Within:
    """The values that a numeric setting may have; ``open`` excludes the lowest."""

    low: float
    high: float = LARGEST
    open: bool = False

    def check(self, name: str, value: float) -> None:
        if not (self.low < value if self.open else self.low <= value) or not value <= self.high:
            low = f"above {self.low:g}" if self.open else f"at least {self.low:g}"
            raise UsageError(f"{name} must be {low} and at most {self.high:.9g}, but is {value}")


KIND_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
Count = Annotated[int, Within(1)]
MaybeCount = Annotated[int | None, Within(1)]
Positive = Annotated[float, Within(0, open=True)]
Fraction = Annotated[float, Within(0, 1)]


@dataclass(frozen=True)
class Settings:
    """The settings of a run that every method has. ``None`` means: chosen automatically, and logged with the reason.

    A method with settings of its own adds them in a subclass, in its own file; see :mod:`selftaught.learners`.
    """

    recipe: str = "official"
    """The name of the recipe: the combination of settings to which the other settings are changes."""
    method: str = "stml"
    """The name of the method of learning (docs/methods.md)."""
    backbone: str = "auto"
    """"auto", "small", "googlenet", "bn_inception", "torchvision.NAME", any timm name, or "package.module:function"."""
    weights: str = "auto"
    """"auto" (pretrained), "none", a safetensors, PyTorch or .npz file, or a run folder."""
    dim: Annotated[int, Within(1, 2**16)] = 512
    """Size of the embedding."""
    epochs: Annotated[int | None, Within(0)] = 90
    """Passes over the images; "auto" is 30, fewer without a GPU or for very many images."""
    batch_size: MaybeCount = None
    """Images in a batch; each is seen in two views. "auto" is 120, fewer for small folders."""
    rows_at_once: MaybeCount = None
    """Views that go through the network at once, if fewer than all of a batch: less memory, a quarter more time, the
    same gradient. Needs STML, frozen batch norm and a backbone without dropout."""
    neighbors: Annotated[int | None, Within(2)] = NEIGHBORS
    """Images per query in a batch, the query included; k of the contextual similarity is twice that. In methods with
    classes or clusters: images of each in a batch. "auto" is 5, or 2 or 3 where there are only so few photos of a
    thing."""
    lr: Annotated[float | None, Within(0, open=True)] = 1e-4
    """Learning rate of the backbone, at the start; "auto" is 0.0001, less in runs of few steps."""
    head_lr: Positive = 1e-4
    """Learning rate of the heads, at the start."""
    optimizer: Literal["adamp", "sgd"] = "adamp"
    """AdamP, or plain gradient steps with momentum 0.9, which need rates some hundred times as large."""
    weight_decay: Annotated[float, Within(0)] = 1e-2
    """Weight decay; with AdamP decoupled from the gradient, with "sgd" a part of it."""
    schedule: Literal["cosine", "settle", "constant"] | None = "cosine"
    """Whether learning rates fall to 0 from epoch to epoch, in half a cosine; do so within 30 epochs and then stay at a
    hundredth; or stay as they are. "auto" is "settle" where weights are pretrained and all learns, else "cosine"."""
    pooling: Literal["avg", "avg+max", "gem"] | None = "avg+max"
    """How a feature map becomes a vector: by its average, by average plus maximum (the authors' code), or by the
    generalized mean, the cube root of the average cube. "auto" is "gem" for EfficientNet-Lite, else "avg+max"."""
    deliver: Literal["f", "whitened"] = "f"
    """The finished model: the head f as it was trained (the paper), or the widest trained head half-whitened to ``dim``
    dimensions on the training images and compared by cosine; the untrained backbone is served where it is better."""
    use_scale: Positive = 1.0
    """The size at which the finished model sees images, in units of the crop that it is trained with."""
    use_size: MaybeCount = None
    """The same in pixels; "auto" follows use_scale."""
    supervised_epochs: Count = 30
    """Epochs of the supervised stage, in semi-supervised training."""
    supervised_lr: Annotated[float | None, Within(0, open=True)] = None
    """Learning rate of the supervised stage, for backbone and heads; "auto": lr and head_lr hold for both stages."""
    freeze_batch_norm: bool | None = None
    """Leave statistics, scale and shift of batch norm as they are; "auto" does so where weights are pretrained."""
    crop_scale: tuple[float, float] = (0.16, 1.0)
    """Area of a random crop, as a range of fractions of the image."""
    crop_shape: Literal["random", "image"] = "random"
    """Shape of a random crop: drawn between 3:4 and 4:3, or the image's own, as if cut from it squashed to a square."""
    color: Annotated[float, Within(0, 2)] = 0.0
    """How much the colors of random views change: 0 not at all (the paper), 1 as usual in self-supervised learning."""
    seed: Annotated[int, Within(0, 2**63 - 1)] = 0
    """The seed of all random numbers: on a CPU, equal seeds, epochs and rows_at_once give equal runs."""
    device: str = "auto"
    """"auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", "mps"."""
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    """Precision of networks in training; "auto" is bfloat16 where that is faster. Similarity and losses use float32."""
    compile: bool | None = None
    """Compile networks and loss, which makes a step faster and the start slower."""
    input: Literal["cache", "files"] = "cache"
    """Decode each file once and make views on the device, or read files again for each view (slow, the reference)."""
    cache_side: Annotated[int | None, Within(16)] = None
    """The short side of decoded images; smaller ones stay as they are."""
    train: Literal["all", "heads"] = "all"
    """What learns: the whole network, or only its heads, on features of the backbone that are computed once."""
    workers: Annotated[int | None, Within(0)] = None
    """Processes that read images; "auto" is one for each core, 16 at most."""
    eval_every: Count = 1
    """Epochs between two measurements on the labeled images; the last epoch is always measured."""
    snapshots: Annotated[int, Within(0)] = 0
    """Epochs between copies of the networks that are kept for figures, also at the start and the end; 0 keeps none."""

    def __post_init__(self) -> None:
        for name, kind in setting_kinds(type(self)).items():
            _check(name, getattr(self, name), kind)
        low, high = self.crop_scale
        if not 0 < low <= high <= 1:
            raise UsageError(f"crop_scale must be two fractions in order, but is {low}, {high}")
        object.__setattr__(self, "crop_scale", (low, high))
        if self.batch_size is not None:
            _check_batch_size(self.batch_size, self.neighbors or NEIGHBORS)

    @property
    def per_query(self) -> int:
        """``neighbors`` of settings that leave it open no more."""
        assert self.neighbors is not None
        return self.neighbors


def setting_kinds(kind: type[Settings]) -> Mapping[str, Any]:
    """The names of the settings of a method, each with its type."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


RECIPES: dict[str, dict[str, Any]] = {
    "best": {
        "epochs": None,
        "neighbors": None,
        "lr": None,
        "schedule": None,
        "momentum": None,
        "pooling": None,
        "crop_scale": (0.4, 1.0),
        "batches": "whitened",
        "deliver": "whitened",
        "use_scale": USE_SCALE,
    },
    "official": {},
    "paper": {
        "reduction": "samples",
        "include_self": False,
        "group_views": False,
        "teacher_update": "after_step",
    },
    "sop": {"neighbors": 2, "delta": 0.9, "momentum": 0.9, "head_lr": 1e-2},
    "scratch": {
        "neighbors": 2,
        "delta": 0.9,
        "momentum": 0.9,
        "dim": 128,
        "lr": 5e-4,
        "schedule": "constant",
        "epochs": 180,
        "weights": "none",
        "backbone": "resnet18",
        "teacher_dim": 1024,
    },
    "semi": {"sigma": 2.0, "momentum": 0.9999, "freeze_batch_norm": True},
}
"""What each recipe changes in the defaults. "best" is what was found best on photos (docs/best.md), "official" what the
authors ran on CUB and Cars, "paper" what the text says, "sop" their settings for products with few photos each,
"scratch" those for training without weights, "semi" those of the second stage of semi-supervised training."""


def parse_value(name: str, text: str, kind: Any) -> Any:
    """The value of a setting from a word on a command line."""
    bare = bare_kind(kind)
    if text.lower() == "auto" and type(None) in typing.get_args(bare):
        return None
    for option in kind_options(bare):
        try:
            if option is bool:
                return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
            if typing.get_origin(option) is tuple:
                low, high = text.split(",")
                return float(low), float(high)
            if option in (int, float, str):
                return option(text)
        except (ValueError, KeyError):
            raise UsageError(f"{name} must be {_words(bare)}, but is {printable(repr(text))}") from None
    return text


def _check(name: str, value: Any, kind: Any) -> None:
    """Raise an error for a value of the wrong type or outside its range."""
    bare = bare_kind(kind)
    if value is None and type(None) in typing.get_args(bare):
        return
    for option in kind_options(bare):
        if typing.get_origin(option) is Literal:
            if value not in typing.get_args(option):
                raise unknown(name, str(value), typing.get_args(option))
            return
        if not _has_type(value, option):
            raise UsageError(f"{name} must be {_words(bare)}, but is {printable(repr(value))}")
    for limits in getattr(kind, "__metadata__", ()):
        limits.check(name, value)


def _has_type(value: Any, option: Any) -> bool:
    if typing.get_origin(option) is tuple:
        return isinstance(value, (tuple, list)) and len(value) == 2 and all(_has_type(part, float) for part in value)
    if option in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if option is float else option)


def _check_batch_size(size: int, neighbors: int) -> None:
    if size < 2 * neighbors:
        raise UsageError(f"batch_size {size} is less than two queries with {neighbors} images each")
    low = size // neighbors * neighbors
    if size != low:
        raise UsageError(f"batch_size {size} is no multiple of neighbors {neighbors}: give {low} or {low + neighbors}")


def bare_kind(kind: Any) -> Any:
    return typing.get_args(kind)[0] if typing.get_origin(kind) is Annotated else kind


def kind_options(kind: Any) -> list[Any]:
    members = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    return [member for member in members if member is not type(None)]


def _words(kind: Any) -> str:
    return " or ".join(KIND_NAMES.get(option, "two numbers such as 0.16,1") for option in kind_options(kind))
