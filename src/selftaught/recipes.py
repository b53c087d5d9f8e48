"""Every setting of a run, and the paper's combinations of them by name."""

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from selftaught.errors import UsageError, unknown
from selftaught.method.losses import Reduction, Similarity

Method = Literal[
    "stml",
    "moco",
    "byol",
    "msf",
    "nce",
    "isif",
    "deepcluster",
    "udml-ss",
    "contrastive",
    "multi-similarity",
    "proxy-anchor",
    "slade",
]
"""The methods of learning, by name; see :mod:`selftaught.learners`."""

LARGEST = 1_000_000
"""What no size, rate or width reaches but by a slip."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run. ``None`` means: chosen automatically, and logged with the reason."""

    recipe: str = "official"
    method: Method = "stml"
    backbone: str = "auto"
    """"auto", "small", "googlenet", "bn_inception", "torchvision.NAME", or any timm name."""
    weights: str = "auto"
    """"auto" (pretrained), "none", or a safetensors, PyTorch or .npz file."""
    dim: int = 512
    """Size of the embedding."""
    epochs: int = 90
    batch_size: int | None = None
    """Images in a batch; each is seen in two views."""
    neighbors: int = 5
    """Images per query in a batch, the query included; k of the contextual similarity is twice that. In methods with
    classes or clusters: images of each in a batch."""
    lr: float = 1e-4
    head_lr: float = 1e-4
    weight_decay: float = 1e-2
    schedule: Literal["cosine", "constant"] = "cosine"
    sigma: float = 3.0
    delta: float = 1.0
    momentum: float = 0.999
    """m of the teacher's moving average (Eq. 4), and of the key encoder in MoCo, BYOL and mean shift."""
    teacher_dim: int | None = None
    """Size of g, the embedding of the teacher; by default that of the pooled feature."""
    teacher_update: Literal["before_step", "after_step"] = "before_step"
    """Average the student before the optimizer's step (the authors' code) or after it (the paper)."""
    reduction: Reduction = "pairs"
    """Divide Eq. 1 by n(n - 1) (the authors' code) or by n (the paper)."""
    include_self: bool = True
    """Let j = i take part in Eq. 2 (the authors' code) or not (the paper)."""
    group_views: bool = True
    """Rows of one image are nearest to each other in Eq. 6 (the authors' code), or only if they are (the paper)."""
    batches: Literal["neighbors", "random"] = "neighbors"
    similarity: Similarity = "contextualized"
    distill: bool = True
    relaxed: bool = True
    """Soft labels in Eq. 1, or labels rounded to 0 and 1 (the paper's ablation)."""
    queue: int = 9600
    """Keys that MoCo and mean shift remember."""
    clusters: int | None = None
    """Clusters of the methods that label by k-means."""
    both_heads: bool = False
    """In supervised methods: train g beside f, as a start for STML."""
    supervised_epochs: int = 30
    """Epochs of the supervised stage, in semi-supervised training."""
    freeze_batch_norm: bool | None = None
    crop_scale: tuple[float, float] = (0.16, 1.0)
    """Area of a random crop, as a range of fractions of the image."""
    seed: int = 0
    device: str = "auto"
    precision: Literal["auto", "32-true", "bf16-mixed"] = "auto"
    compile: bool | None = None
    """Compile networks and loss, which makes a step faster and the start slower."""
    input: Literal["cache", "files"] = "cache"
    """Decode each file once and make views on the device, or read files anew for each view (slow, the reference)."""
    cache_side: int | None = None
    """The short side of decoded images; smaller ones stay as they are."""
    train: Literal["all", "heads"] = "all"
    """The whole network, or only its heads on features of the backbone that are computed once."""
    search: Literal["auto", "exact", "approximate"] = "auto"
    """How neighbors for batches are found; "auto" is exact, but for collections that are too large for that."""
    workers: int | None = None
    """Processes that read images."""
    eval_every: int = 1
    """Measure on the labeled images after every so many epochs, and after the last."""
    snapshots: int = 0
    """Keep the networks every so many epochs, and those of the start and the end, for figures; 0 keeps none."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "crop_scale", tuple(self.crop_scale))
        lowest_values = {"dim": 1, "epochs": 0, "neighbors": 2, "seed": 0, "queue": 1, "supervised_epochs": 1}
        for name, lowest in (lowest_values | {"eval_every": 1, "snapshots": 0}).items():
            _require(getattr(self, name) >= lowest, name, f"must be at least {lowest}, but is {getattr(self, name)}")
        _require(self.seed < 2**63, "seed", f"must be below 2^63, but is {self.seed}")
        for name in ("dim", "teacher_dim", "queue"):
            value = getattr(self, name) or 1
            _require(value <= LARGEST, name, f"must be at most {LARGEST}, but is {value}")
        for name in ("lr", "head_lr", "sigma", "delta"):
            value = getattr(self, name)
            _require(0 < value <= LARGEST, name, f"must be positive and at most {LARGEST}, but is {value}")
        decay = self.weight_decay
        _require(0 <= decay <= LARGEST, "weight_decay", f"must not be negative or over {LARGEST}, but is {decay}")
        _require(0 <= self.momentum <= 1, "momentum", f"must be within 0 and 1, but is {self.momentum}")
        low, high = self.crop_scale
        _require(0 < low <= high <= 1, "crop_scale", f"must be two fractions in order, but is {low}, {high}")
        _require(self.workers is None or self.workers >= 0, "workers", f"must not be negative, but is {self.workers}")
        _require(self.clusters is None or self.clusters >= 2, "clusters", f"must be at least 2, but is {self.clusters}")
        side = self.cache_side
        _require(side is None or side >= 16, "cache_side", f"must be at least 16, but is {side}")
        wide = self.teacher_dim
        _require(wide is None or wide >= 1, "teacher_dim", f"must be at least 1, but is {wide}")
        size = self.batch_size
        if size is not None:
            least = 2 * self.neighbors
            _require(size >= least, "batch_size", f"{size} is less than two queries with {self.neighbors} images each")
            low = size // self.neighbors * self.neighbors
            hint = f"{size} is no multiple of neighbors {self.neighbors}: give {low} or {low + self.neighbors}"
            _require(size == low, "batch_size", hint)


RECIPES: dict[str, dict[str, Any]] = {
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
"""What each recipe changes in the defaults. "official" is what the authors ran on CUB and Cars, "paper" what the
text says, "sop" their settings for products with few photos each, "scratch" those for training without weights,
"semi" those of the second stage of semi-supervised training."""


def settings(recipe: str = "official", **changes: Any) -> Settings:
    """The settings of a recipe, with changes.

    Example:
        >>> settings("paper", epochs=30).reduction
        'samples'
    """
    if recipe not in RECIPES:
        raise unknown("recipe", recipe, RECIPES)
    return changed(Settings(recipe=recipe), RECIPES[recipe] | changes)


def changed(start: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with changes, each of a known name and the right kind."""
    kinds = typing.get_type_hints(Settings)
    for name, value in changes.items():
        if name not in kinds or name == "recipe":
            raise unknown("setting", name, set(kinds) - {"recipe"})
        _check_kind(name, value, kinds[name])
    return replace(start, **changes)


def parsed(assignments: list[str]) -> dict[str, Any]:
    """Settings from words such as ``sigma=2`` on a command line."""
    kinds = typing.get_type_hints(Settings)
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise UsageError(f"--set takes NAME=VALUE, but got {assignment!r}")
        if name not in kinds or name == "recipe":
            raise unknown("setting", name, set(kinds) - {"recipe"})
        changes[name] = _parse(name, text.strip(), kinds[name])
    return changes


def from_saved(saved: Mapping[str, Any]) -> Settings:
    """Settings read back from a run's JSON."""
    known = {field.name for field in fields(Settings)}
    return Settings(**{name: value for name, value in saved.items() if name in known})


def _parse(name: str, text: str, kind: Any) -> Any:
    if text.lower() == "auto" and type(None) in typing.get_args(kind):
        return None
    for option in _options(kind):
        try:
            if option is bool:
                return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
            if typing.get_origin(option) is tuple:
                low, high = text.split(",")
                return float(low), float(high)
            if option in (int, float, str):
                return option(text)
        except (ValueError, KeyError):
            raise UsageError(f"{name} must be {_words(kind)}, but is {text!r}") from None
    return text


def _check_kind(name: str, value: Any, kind: Any) -> None:
    if value is None and type(None) in typing.get_args(kind):
        return
    for option in _options(kind):
        if typing.get_origin(option) is Literal:
            if value not in typing.get_args(option):
                raise unknown(name, str(value), typing.get_args(option))
            return
        if typing.get_origin(option) is tuple:
            pair = isinstance(value, (tuple, list)) and len(value) == 2
            if not pair or not all(isinstance(v, (int, float)) for v in value):
                raise UsageError(f"{name} must be {_words(kind)}, but is {value!r}")
            return
        number = option is float and isinstance(value, int) and not isinstance(value, bool)
        if not (isinstance(value, option) or number) or (option is int and isinstance(value, bool)):
            raise UsageError(f"{name} must be {_words(kind)}, but is {value!r}")


def _options(kind: Any) -> list[Any]:
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return [member for member in members if member is not type(None)]


def _words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
    return " or ".join(names.get(option, "two numbers such as 0.16,1") for option in _options(kind))


def _require(holds: bool, name: str, message: str) -> None:
    if not holds:
        raise UsageError(f"{name} {message}")
