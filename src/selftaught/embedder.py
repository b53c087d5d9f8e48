"""The finished model: load it, embed images with it, save it."""

import json
import os
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save
from torch import Tensor, nn

import selftaught
from selftaught.data import (
    Advance,
    FileReader,
    Skipped,
    ViewRequest,
    Views,
    available_cores,
    from_array,
    open_image,
    to_rgb,
)
from selftaught.errors import ImageError, SelftaughtError, UsageError, printable
from selftaught.files import write_atomically
from selftaught.networks import EmbeddingNetwork, Encoder, Preprocessing, build_backbone, is_backbone
from selftaught.networks.model import HEADS

FORMAT = 1
METRICS = ("euclidean", "cosine")
"""How vectors are compared: as they are, or by their direction, in which case they come out with length 1."""
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
BATCH_SIZE = 64
FEW_IMAGES = 64
"""Fewer images than this are read without starting processes for it."""

ImageLike = str | os.PathLike[str] | Image.Image | np.ndarray


class Embedder:
    """Images → vectors, in which a small Euclidean distance means "the same thing".

    STML's vectors are not normalized. Models of other methods may name "cosine" as their metric: their vectors have
    length 1, so that Euclidean distances rank as cosines do.

    Example:
        >>> embedder = Embedder.load(getfixture("run"))  # a folder written by train
        >>> vectors = embedder.encode([Image.new("RGB", (80, 60), "red"), Image.new("RGB", (80, 60), "blue")])
        >>> vectors.shape
        torch.Size([2, 8])
    """

    def __init__(self, network: EmbeddingNetwork, description: dict[str, Any]) -> None:
        self.network = network.eval()
        self.description = description

    @classmethod
    def load(
        cls, run: str | os.PathLike[str], device: str | torch.device = "auto", backbone: nn.Module | None = None
    ) -> "Embedder":
        """Load a run's model.

        Args:
            run: the folder that ``train`` wrote, or a backbone's name: its pretrained features, pooled by their
                average and compared by cosine, which is what a training must beat.
            device: "auto" takes a GPU if there is one.
            backbone: the module a run was trained with, if it was your own; its weights are overwritten.
        """
        folder = Path(run)
        if backbone is None and not folder.exists() and is_backbone(str(run)):
            return cls.plain(str(run), device)
        description = _read_description(folder)
        name = description["backbone"]
        if backbone is None and description["own_backbone"]:
            raise UsageError(
                f"the model in {printable(folder)} was trained with a backbone of your own, {printable(name)}: "
                "load it from Python with Embedder.load(run, backbone=module)"
            )
        try:
            preprocessing = Preprocessing(**description["preprocessing"])
            encoder = Encoder(
                backbone or build_backbone(name, "none").module, preprocessing, pooling=description["pooling"]
            )
            head = HEADS[description["head"]](encoder.features, description["dim"])
            network = EmbeddingNetwork(encoder, {"f": head}, normalize=description["metric"] == "cosine")
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise SelftaughtError(f"{printable(folder / DESCRIPTION)} does not describe a model: {reason}") from None
        try:
            network.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, safetensors.SafetensorError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise SelftaughtError(f"cannot load {printable(folder / WEIGHTS)}: {reason}") from None
        return cls(network.to(choose_device(device)), description)

    @classmethod
    def plain(cls, name: str = "auto", device: str | torch.device = "auto") -> "Embedder":
        """A pretrained backbone as it is: average pooling, vectors of length 1."""
        built = build_backbone(name)
        encoder = Encoder(built.module, built.preprocessing, pooling="avg")
        network = EmbeddingNetwork(encoder, {"f": nn.Identity()}, normalize=True)
        description = describe(
            backbone=built.name,
            own_backbone=False,
            preprocessing=built.preprocessing,
            dim=encoder.features,
            head="none",
            pooling="avg",
            metric="cosine",
            settings={"recipe": "none"},
        )
        return cls(network.to(choose_device(device)), description)

    @property
    def dim(self) -> int:
        return int(self.description["dim"])

    @property
    def metric(self) -> str:
        """ "euclidean" or "cosine"."""
        return str(self.description["metric"])

    @property
    def preprocessing(self) -> Preprocessing:
        return self.network.encoder.preprocessing

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def encode(self, images: Sequence[ImageLike], batch_size: int = BATCH_SIZE) -> Tensor:
        """Embed images.

        Args:
            images: paths, Pillow images, or arrays (H×W, H×W×3 or H×W×4; uint8, uint16, or floats within [0, 1]).

        Returns:
            n×dim float32 vectors on the CPU.

        Raises:
            ImageError: if one of them cannot be read.
        """
        if isinstance(images, (str, os.PathLike, Image.Image)) or getattr(images, "ndim", 4) < 4:
            raise TypeError("encode takes a list of images; put a single one into brackets")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but is {batch_size}")
        if len(images) and all(isinstance(image, (str, os.PathLike)) for image in images):
            paths = [os.fspath(image) for image in images if isinstance(image, (str, os.PathLike))]
            vectors, skipped = self.encode_files(paths, batch_size)
            if skipped:
                raise ImageError(f"cannot read {printable(skipped[0].path)}: {skipped[0].reason}")
            return vectors
        views = self._views()
        parts = [torch.empty(0, self.dim)]
        for start in range(0, len(images), batch_size):
            batch = torch.cat([views(_as_image(image), "center") for image in images[start : start + batch_size]])
            parts.append(self._embed(batch.to(self.device))["f"].float().cpu())
        return torch.cat(parts)

    def encode_files(
        self, paths: Sequence[str], batch_size: int = BATCH_SIZE, advance: Advance = lambda _: None
    ) -> tuple[Tensor, list[Skipped]]:
        """Embed files, leaving out those that cannot be read: vectors of the others in order, and what was skipped."""
        parts, skipped = [torch.empty(0, self.dim)], []
        done = 0
        for vectors, failures in self.encode_batches(paths, len(paths), batch_size):
            parts.append(vectors)
            skipped += [Skipped(paths[done + position], reason) for position, reason in failures]
            done += len(vectors) + len(failures)
            advance(len(vectors) + len(failures))
        return torch.cat(parts), skipped

    def encode_batches(
        self, paths: Iterable[str], count: int, batch_size: int = BATCH_SIZE
    ) -> Generator[tuple[Tensor, list[tuple[int, str]]]]:
        """Embed files batch by batch, in order.

        Args:
            paths: read as they are needed.
            count: how many there are.

        Yields:
            For each batch the vectors of the files that could be read, on the CPU, and (which of the batch, why) for
            the rest.
        """
        rest = iter(paths)
        batches = iter(lambda: [ViewRequest(path, "center") for path in islice(rest, batch_size)], [])
        reader = FileReader(self._views(), 0 if count < FEW_IMAGES else min(8, available_cores()))
        try:
            for batch in reader.read(batches):
                vectors = torch.empty(0, self.dim)
                if batch.positions:
                    vectors = self._embed(batch.images.to(self.device).flatten(0, 1))["f"].float().cpu()
                yield vectors, batch.failures
        finally:
            reader.close()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write ``model.safetensors`` and ``model.json``; an older pair there is replaced."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        write_atomically(place / WEIGHTS, save(state, metadata={"format": "pt"}))
        write_atomically(place / DESCRIPTION, json.dumps(self.description, indent=2) + "\n")

    @torch.inference_mode()
    def _embed(self, images: Tensor) -> dict[str, Tensor]:
        output: dict[str, Tensor] = self.network(images)
        return output

    def _views(self) -> Views:
        p = self.preprocessing
        return Views(p.size, p.use_resize, p.squash, use_size=p.use_size)


def describe(
    *,
    backbone: str,
    own_backbone: bool,
    preprocessing: Preprocessing,
    dim: int,
    head: str = "linear",
    pooling: str = "avg+max",
    metric: str = "euclidean",
    settings: dict[str, Any],
) -> dict[str, Any]:
    """The content of ``model.json``: all that is needed to use the weights, and how they came about."""
    return {
        "format": FORMAT,
        "backbone": backbone,
        "own_backbone": own_backbone,
        "dim": dim,
        "head": head,
        "pooling": pooling,
        "metric": metric,
        "preprocessing": asdict(preprocessing),
        "recipe": settings["recipe"],
        "settings": settings,
        "versions": {
            "selftaught": selftaught.__version__,
            "torch": torch.__version__,
            "torchvision": torchvision.__version__,
            "timm": timm.__version__,
        },
    }


def choose_device(device: str | torch.device = "auto") -> torch.device:
    """A device by name; "auto" takes a CUDA GPU if there is one."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backends = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here = [name for name, available in backends.items() if available]
    try:
        chosen = torch.device(device)
        if chosen.type not in here:
            raise RuntimeError
        torch.empty(0, device=chosen)
    except RuntimeError:
        raise UsageError(f"there is no device {printable(device)!r} here: use auto or {' or '.join(here)}") from None
    return chosen


def _read_description(folder: Path) -> dict[str, Any]:
    file = folder / DESCRIPTION
    if not folder.is_dir():
        raise UsageError(f"there is no run {printable(folder)}")
    if not file.is_file():
        begun = (folder / "settings.json").is_file()
        hint = (
            f"its training has not finished: selftaught train --resume {printable(folder)}" if begun else "it is no run"
        )
        raise UsageError(f"there is no model in {printable(folder)}: {hint}")
    try:
        description: dict[str, Any] = {"head": "linear", "pooling": "avg+max"} | json.loads(file.read_text("utf-8"))
        kind, metric = description["format"], description["metric"]
        missing = {"backbone", "own_backbone", "dim", "preprocessing"} - set(description)
    except (ValueError, KeyError, TypeError, OSError):
        raise SelftaughtError(f"{printable(file)} is damaged: it does not describe a model") from None
    if kind != FORMAT or metric not in METRICS or missing:
        raise SelftaughtError(
            f"{printable(file)} was written by another version of selftaught, which this one cannot read"
        )
    return description


def _as_image(image: ImageLike) -> Image.Image:
    if isinstance(image, Image.Image):
        return to_rgb(image)
    if isinstance(image, (str, os.PathLike)):
        try:
            return open_image(image)
        except ImageError as error:
            raise ImageError(f"cannot read {printable(image)}: {error}") from None
    return from_array(np.asarray(image))
