"""The finished model: load it, embed images with it, compare vectors, save it."""

import os
from collections.abc import Iterable, Sequence, Sized
from dataclasses import asdict, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.console import Reporter
from selftaught.devices import choose_device
from selftaught.encoding import BATCH_SIZE, SCALES, Encoding, ImageLike
from selftaught.errors import ImageError, SelftaughtError, UsageError, printable
from selftaught.model_files import (
    DESCRIPTION,
    build_network,
    check_folder,
    describe,
    fingerprint,
    read_description,
    refuse_code,
)
from selftaught.networks import (
    LARGEST_SIZE,
    WHITENED_ON,
    Backbone,
    EmbeddingNetwork,
    Encoder,
    Preprocessing,
    build_backbone,
    choose_exponent,
    is_backbone,
    untrained_encoder,
    whitened_layer,
)
from selftaught.sharing import Shared, add_history, download, looks_like_repository, upload, write_shared

if TYPE_CHECKING:
    from selftaught.index import Hit, Index


class Embedder:
    """Images → vectors, in which a small Euclidean distance means "the same thing".

    STML's vectors are not normalized. Models of other methods may name "cosine" as their metric: their vectors have
    length 1, so that Euclidean distances rank as cosines do. Several threads may use one Embedder at once.

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
        cls,
        run: str | os.PathLike[str],
        device: str | torch.device = "auto",
        backbone: nn.Module | None = None,
        *,
        size: int | None = None,
        mirror: bool | None = None,
        scales: int | None = None,
    ) -> "Embedder":
        """Load a run's model.

        Args:
            run: the folder that ``train`` wrote, finished or not; or a backbone's name, for its pretrained features
                as training with the recipe "best" begins with them; or "user/name" on the model hub.
            device: "auto" takes a GPU if there is one.
            backbone: the module a run was trained with, if it was your own; its weights are overwritten.
            size, mirror, scales: as in :meth:`seeing`; by default as the model was saved.
        """
        if not isinstance(run, str | os.PathLike) or not os.fspath(run):
            raise UsageError(f"there is no run {run!r}: give the folder of one, or a backbone's name")
        if not isinstance(backbone, nn.Module | None):
            raise UsageError(f"backbone must be the module that the run was trained with, but is {printable(backbone)}")
        if backbone is None and not Path(run).exists() and is_backbone(str(run)):
            return cls.untrained(str(run), device).seeing(size, mirror, scales)
        downloaded = looks_like_repository(str(run))
        folder = check_folder(download(str(run)) if downloaded else run)
        if downloaded and backbone is None:
            refuse_code(str(run), folder)
        if not (folder / DESCRIPTION).exists():
            from selftaught.training import load_unfinished  # which imports this

            model = load_unfinished(folder, backbone)
        else:
            description = add_history(read_description(folder), folder)
            model = cls(build_network(folder, description, backbone), description)
        model.network.to(choose_device(device))
        return model.seeing(size, mirror, scales)

    @classmethod
    def untrained(
        cls, backbone: str | Backbone = "auto", device: str | torch.device = "auto", own_backbone: bool = False
    ) -> "Embedder":
        """A backbone without training, with the pooling and at the size that suit it; vectors of length 1.

        ``own_backbone``: it is a module of your own.
        """
        built = build_backbone(backbone) if isinstance(backbone, str) else backbone
        return cls._without_head(untrained_encoder(built), built.name, device, own_backbone)

    @classmethod
    def plain(cls, backbone: str, device: str | torch.device = "auto") -> "Embedder":
        """A backbone as it is, to compare with: average pooling at its own size, vectors of length 1."""
        built = build_backbone(backbone)
        return cls._without_head(Encoder(built.module, built.preprocessing, pooling="avg"), built.name, device)

    @classmethod
    def _without_head(
        cls, encoder: Encoder, backbone: str, device: str | torch.device, own_backbone: bool = False
    ) -> "Embedder":
        network = EmbeddingNetwork(encoder, {"f": nn.Identity()}, normalize=True)
        description = describe(
            network,
            backbone=backbone,
            own_backbone=own_backbone,
            dim=encoder.features,
            head="none",
            settings={"recipe": "none"},
        )
        return cls(network.to(choose_device(device)), description)

    def seeing(self, size: int | None = None, mirror: bool | None = None, scales: int | None = None) -> "Embedder":
        """The same model, looking at images in another way; what is not given stays as it is.

        Args:
            size: pixels of the center crop that the network sees. Larger often finds more; time grows with its square.
            mirror: average each vector with that of the mirrored image, for twice the time.
            scales: see each image at 1, 2 or 3 sizes and average, for 1, 2.6 or 3.2 times the time.
        """
        if size is None and mirror is None and scales is None:
            return self
        if size is not None and (not isinstance(size, Integral) or not 1 <= size <= LARGEST_SIZE):
            raise UsageError(f"the size must be a whole number between 1 and {LARGEST_SIZE} pixels, but is {size!r}")
        if scales is not None and scales not in list(SCALES):
            raise UsageError(f"scales must be 1, 2 or 3, but is {scales!r}")
        try:
            seen = replace(self.preprocessing, use_size=int(size or self.preprocessing.use_size))
        except ValueError as error:
            raise UsageError(str(error)) from None
        changes: dict[str, Any] = {"preprocessing": asdict(seen)}
        changes |= {} if mirror is None else {"mirror": bool(mirror)}
        changes |= {} if scales is None else {"scales": int(scales)}
        other = Embedder(self.network, self.description | changes)
        other.encoding.check()
        return other

    def whiten(self, paths: Sequence[str], dim: int | None = None) -> "Embedder":
        """The same model with vectors half-whitened on these images (less where they already form groups) and of length
        1: no labels, no training. Those that cannot be read are left out."""
        features, _ = self.raw.encoding.encode_files(paths[:: max(1, -(-len(paths) // WHITENED_ON))])
        return self.whiten_by(features, dim)

    @property
    def raw(self) -> "Embedder":
        """The same model without giving vectors length 1, on one view of each image: its vectors can be whitened."""
        head = self.network.heads["f"]
        if not isinstance(head, nn.Identity | nn.Linear):
            raise UsageError("this model cannot be whitened: its head has more than one layer")
        network = EmbeddingNetwork(self.network.encoder, {"f": head})
        return Embedder(network, self.description | {"mirror": False, "scales": 1})

    def whiten_by(self, vectors: Tensor, dim: int | None = None) -> "Embedder":
        """The same model half-whitened on vectors of images, made by :attr:`raw`."""
        if len(vectors) < 2:
            raise SelftaughtError(f"whitening needs at least 2 images that can be read, but there are {len(vectors)}")
        head = self.network.heads["f"]
        linear = head if isinstance(head, nn.Linear) else None
        try:
            layer = whitened_layer(vectors, self.dim if dim is None else dim, choose_exponent(vectors), linear)
        except ValueError as error:
            raise SelftaughtError(f"cannot whiten on these images: {error}") from None
        network = EmbeddingNetwork(self.network.encoder, {"f": layer.to(self.device)}, normalize=True)
        changes = {"head": "linear", "metric": "cosine", "dim": layer.out_features, "whitened": self.identity}
        return Embedder(network, self.description | changes)

    @property
    def dim(self) -> int:
        return int(self.description["dim"])

    @property
    def metric(self) -> str:
        """ "euclidean" or "cosine"."""
        return str(self.description["metric"])

    @property
    def comparison(self) -> str:
        """How its vectors are compared, in words."""
        return "cosine" if self.metric == "cosine" else "Euclidean distance"

    @property
    def mirror(self) -> bool:
        return bool(self.description.get("mirror", False))

    @property
    def scales(self) -> int:
        return int(self.description.get("scales", 1))

    @property
    def preprocessing(self) -> Preprocessing:
        return Preprocessing(**self.description["preprocessing"])

    @property
    def device(self) -> torch.device:
        return self.encoding.device

    @property
    def encoding(self) -> Encoding:
        """How images become vectors, for files by the thousand; for a few images there is :meth:`encode`."""
        return Encoding(self.network, self.preprocessing, self.dim, self.mirror, self.scales)

    @cached_property
    def identity(self) -> str:
        """A fingerprint of all that decides about vectors: those of two identities must not be compared."""
        about = {name: self.description.get(name) for name in ("backbone", "dim", "head", "pooling", "metric")}
        inputs = asdict(self.preprocessing)
        del inputs["multiple"]  # limits sizes, but changes no vector
        about |= {"preprocessing": inputs, "mirror": self.mirror, "sides": self.encoding.sides}
        return fingerprint(about, self.network)

    def __repr__(self) -> str:
        seen = f"seen at {' and '.join(map(str, self.encoding.sides))} pixels" + (", mirrored" if self.mirror else "")
        kind = f"{self.dim} dimensions compared by {self.comparison}"
        recipe = self.description.get("recipe", "none")
        how = "pretrained" if recipe == "none" else f"recipe {recipe}"
        if "epoch" in self.description:
            how += f", unfinished, after epoch {self.description['epoch']} of {self.description['epochs']}"
        how += ", whitened" if "whitened" in self.description else ""
        return f"Embedder({self.description['backbone']}, {how}: {kind}, {seen}, on {self.device})"

    def encode(
        self, images: ImageLike | Iterable[ImageLike], batch_size: int = BATCH_SIZE, show_progress: bool = False
    ) -> Tensor:
        """Embed images.

        Args:
            images: paths, Pillow images, or arrays (H×W, H×W×3 or H×W×4; uint8, uint16, or floats within [0, 1]);
                a list of them, an array of paths, a generator, which is read as it is needed, or a single one.
            show_progress: say on standard error how many are done, and how long the rest will take.

        Returns:
            n×dim float32 vectors on the CPU; for a single image, one of dim numbers.

        Raises:
            ImageError: if one of them cannot be read.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, but is {batch_size}")
        if isinstance(images, (str, os.PathLike, Image.Image)) or getattr(images, "ndim", 1) not in (1, 4):
            return self.encode([cast(ImageLike, images)], batch_size)[0]
        if not isinstance(images, Iterable):
            raise ImageError(f"images are paths, Pillow images or arrays, one or several of them, but not {images!r}")
        parts = [torch.empty(0, self.dim)]
        count = len(images) if isinstance(images, Sized) else None
        with Reporter(quiet=not show_progress).work("embedding images", count) as tell:
            for vectors in self.encoding.encode(images, batch_size):
                parts.append(vectors)
                tell(len(vectors))
        return torch.cat(parts)

    def similarity(self, a: Tensor | np.ndarray, b: Tensor | np.ndarray) -> Tensor:
        """How alike vectors are, n×dim and m×dim → n×m: their cosine, or for other models the negative distance.

        Example:
            >>> embedder = Embedder.load(getfixture("run"))
            >>> vectors = embedder.encode([Image.new("RGB", (80, 60), color) for color in ("red", "blue", "red")])
            >>> embedder.similarity(vectors, vectors).argsort(descending=True)[0, -1]
            tensor(1)
        """
        first, second = (torch.as_tensor(vectors, dtype=torch.float32) for vectors in (a, b))
        if not all(vectors.ndim in (1, 2) and vectors.shape[-1] == self.dim for vectors in (first, second)):
            shapes = f"{[*first.shape]} and {[*second.shape]}"
            raise ValueError(f"vectors of this model are n×{self.dim}, but these are {shapes}")
        first, second = torch.atleast_2d(first, second)
        if self.metric == "cosine":
            return F.normalize(first) @ F.normalize(second).T
        return -torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist")

    def search(
        self, queries: ImageLike | Sequence[ImageLike], k: int = 10, *, index: "str | os.PathLike[str] | Index"
    ) -> "list[list[Hit]]":
        """The k nearest images of each query in an index of this very model, nearest first.

        Args:
            queries: as for :meth:`encode`; a single one is a list of one.
            index: the folder that ``selftaught index`` wrote, or what ``selftaught.index.open_index`` returned, which
                is quicker if one searches often.

        Raises:
            UsageError: if the index holds vectors of another model. ``selftaught index`` whitens that of a network's
                name, which ``open_index`` then loads from the index.
        """
        from selftaught.index import Index, open_index  # which imports this

        opened = index if isinstance(index, Index) else open_index(index, embedder=self)
        opened.check_model(self, to_search=True)
        return opened.search_vectors(self.encode(queries).reshape(-1, self.dim), k)

    def save(self, folder: str | os.PathLike[str], *, license: str | None = None) -> Shared:  # noqa: A002
        """Write a folder for others: weights, ``model.json``, a model card, and what timm and others need to load it.

        Args:
            license: of the model, as the hub names it, such as "apache-2.0"; for the card.

        Returns:
            Whether timm, transformers and sentence-transformers can load it, and how far their vectors are from these.
        """
        return write_shared(Path(folder), self.network, self.description, license)

    def push_to_hub(self, repository: str, *, private: bool = True, license: str | None = None) -> str:  # noqa: A002
        """Put what :meth:`save` writes on the model hub, as "user/name"; returns its address."""
        return upload(lambda folder: self.save(folder, license=license), repository, private)
