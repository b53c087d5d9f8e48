"""Training of the heads alone: the backbone stays as it is, so its features of every image are computed only once.

The loop, the learners and the checkpoints are those of all training. What differs: the encoder does not learn, and
:class:`FeatureReader` answers requests for views by their features, which the encoder hands on as they are.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from selftaught.data import Batch, ImageFolder, ImageReader, Skipped, View, ViewRequest, view_seed
from selftaught.networks import EmbeddingNetwork, Encoder
from selftaught.parallel import agreed, collected, first_decides, shard
from selftaught.training.features import FEATURES, KeptFeatures
from selftaught.training.interrupts import Interrupts
from selftaught.training.measure import Unreadable
from selftaught.training.progress import Reporter, Tell

VIEWS = 4
"""Random views of each training image whose features are kept; a request for two gets two of them. Twice as many took
twice the time and gave the same Recall@1 within 0.1."""
BLOCK = 8192
CPU_ROWS = 8
"""Images that a CPU embeds at once: the feature maps of many do not stay in its caches, and take twice the time."""


class FeatureReader:
    """Answers requests as a reader of images does, but by features: float32, n×1×d, or n×2×d for "random".

    "random" gives two different ones of the kept views of an image, chosen by the request's seed alone. The features
    are computed when the first batch is read: by then the encoder must have its weights and be on its device. Those
    that were computed before, with the same weights and for the same list of files, are taken as they are.
    """

    def __init__(
        self,
        source: ImageReader,
        encoder: Encoder,
        run: Path,
        images: ImageFolder,
        labeled: ImageFolder | None,
        seed: int,
        device: torch.device,
        reporter: Reporter,
        interrupts: Interrupts,
    ) -> None:
        """``images`` will be asked for as "squash" and "random", ``labeled`` as "center"; ``source`` reads them."""
        self.source, self.encoder, self.folder = source, encoder, run / FEATURES
        self.images, self.labeled, self.seed, self.device = images, labeled, seed, device
        self.reporter, self.interrupts = reporter, interrupts
        self._kept: dict[str, tuple[np.ndarray, dict[str, int]]] = {}

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        if not self._kept:
            self._kept = self._compute()
        for batch in batches:
            features = np.stack([self._find(request) for request in batch])
            yield Batch(torch.from_numpy(features).to(self.device), list(range(len(batch))), [])

    def prepare(self, images: ImageFolder, labeled: ImageFolder | None) -> None:
        self.source.prepare(images, labeled)

    def close(self) -> None:
        self.source.close()

    def start(self, network: EmbeddingNetwork) -> None:
        """Let the head "f" begin with the directions in which the features of the training images differ most.

        They are orthogonal too, but lose less than directions drawn at random, which a backbone that does not learn
        could never make up for. A head of another kind, or one wider than the features, begins as it is.
        """
        head = network.heads["f"]
        if not isinstance(head, nn.Linear) or head.out_features > head.in_features:
            return
        self._kept = self._kept or self._compute()
        directions = agreed(principal_directions(self._kept["squash"][0][:, 0], head.out_features))
        with torch.no_grad():
            head.weight.copy_(directions)

    def _find(self, request: ViewRequest) -> np.ndarray:
        features, rows = self._kept[request.view]
        views: np.ndarray = features[rows[request.path]]
        return views[two_of(VIEWS, request.seed)] if request.view == "random" else views

    def _compute(self) -> dict[str, tuple[np.ndarray, dict[str, int]]]:
        """The features of each kind of view, and in which row of them a file is."""
        weights, training = _digest(self.encoder), self.encoder.training
        self.encoder.eval()
        # The random views last: what cannot be read is found before, and what a cache decodes is there for them.
        rows = _rows(self.images)
        kept = {"squash": (self._keep("squash", self.images, 1, weights), rows)}
        if self.labeled is not None:
            kept["center"] = self._keep("center", self.labeled, 1, weights), _rows(self.labeled)
        kept["random"] = self._keep("random", self.images, VIEWS // 2, weights), rows
        self.encoder.train(training)
        return kept

    def _keep(self, view: View, images: ImageFolder, looks: int, weights: bytes) -> np.ndarray:
        """The answers to ``looks`` requests for a view of each image, which have two views each if it is random."""
        names = "\0".join([str(images.root), *images.files]).encode("utf-8", "surrogateescape")
        key = hashlib.sha256(weights + names).hexdigest()[:16]
        views = looks * (2 if view == "random" else 1)
        kept = KeptFeatures(self.folder / f"{view}-{key}.npy", len(images), views, self.encoder.features)
        blocks = first_decides(kept.prepare)
        left, total = sum(len(kept.images(block)) for block in blocks) * looks, len(images) * looks
        with self.reporter.work(f"computing features of {view} views", total, total - left) as tell:
            failed = self._fill(kept, [blocks[i] for i in shard(len(blocks))], view, images, looks, tell)
        skipped = collected(failed)  # by when all processes have written
        if skipped:
            raise Unreadable(images, skipped)
        return kept.array()

    @torch.no_grad()
    def _fill(
        self, kept: KeptFeatures, blocks: list[int], view: View, images: ImageFolder, looks: int, tell: Tell
    ) -> list[Skipped]:
        """Compute blocks and write them; what cannot be read is returned, and blocks with such images stay open."""
        pieces = [(block, look) for block in blocks for look in range(looks)]
        requests = (
            [ViewRequest(images.path(i), view, view_seed(self.seed, i, look)) for i in kept.images(block)]
            for block, look in pieces
        )
        skipped: dict[int, str] = {}
        parts: list[Tensor] = []
        for (block, look), batch in zip(pieces, self.source.read(requests), strict=True):
            skipped |= {kept.images(block)[position]: reason for position, reason in batch.failures}
            parts.append(self._encode(batch.images) if not batch.failures else torch.empty(0))
            if look + 1 == looks:
                if skipped.keys().isdisjoint(kept.images(block)):
                    kept.write(block, torch.cat(parts, 1).numpy())
                parts.clear()
            self.interrupts.check()
            tell(len(kept.images(block)), "")
        return [Skipped(images.files[i], reason) for i, reason in skipped.items()]

    def _encode(self, images: Tensor) -> Tensor:
        """uint8 n×views×3×H×W → n×views×d on the CPU, in full precision: the features that the finished model has."""
        rows = images.to(self.device).flatten(0, 1)
        with torch.autocast(self.device.type, enabled=False):
            parts = [self.encoder(part) for part in rows.split(CPU_ROWS if self.device.type == "cpu" else len(rows))]
        features: Tensor = torch.cat(parts).float().cpu().unflatten(0, images.shape[:2])
        return features


def principal_directions(features: np.ndarray, count: int) -> Tensor:
    """The orthogonal directions of largest variance, count×d, from features n×d.

    Example:
        >>> points = np.array([[0.0, 0.0], [3.0, 3.0], [6.0, 6.0], [3.0, 3.1]])
        >>> [round(abs(x), 1) for x in principal_directions(points, 1)[0].tolist()]
        [0.7, 0.7]
    """
    mean = features.mean(0, dtype=np.float64)
    products = np.zeros((len(mean), len(mean)))
    for first in range(0, len(features), BLOCK):  # the features may be on the disk, and more than the memory holds
        centered = features[first : first + BLOCK] - mean
        products += centered.T @ centered
    vectors = torch.from_numpy(np.linalg.eigh(products)[1])
    return vectors.flip(1)[:, :count].T.float()


def two_of(count: int, seed: int) -> list[int]:
    """Two different numbers below ``count``, decided by ``seed`` alone.

    Example:
        >>> two_of(8, seed=5) == two_of(8, seed=5), len(set(two_of(2, seed=1)))
        (True, 2)
    """
    return random.Random(seed).sample(range(count), 2)


def _rows(images: ImageFolder) -> dict[str, int]:
    return {images.path(i): i for i in range(len(images))}


def _digest(encoder: Encoder) -> bytes:
    """What tells an encoder with these weights from others."""
    digest = hashlib.sha256(repr(encoder.preprocessing).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
