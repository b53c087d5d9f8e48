"""Training of the heads alone: the backbone stays as it is, so its features of every image are computed only once.

The loop, the learners and the checkpoints are the same as in all training. Two things differ: the encoder does not
learn, and :class:`FeatureReader` answers requests for views with features, which the encoder returns unchanged.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from selftaught.console import Interrupts, Reporter, Tell
from selftaught.data import Batch, ImageFolder, ImageReader, Skipped, View, ViewRequest, stamp, view_seed
from selftaught.networks import EmbeddingNetwork, Encoder
from selftaught.parallel import all_gather_list, broadcast, run_on_first, shard
from selftaught.run_folder import FEATURES
from selftaught.training.evaluation import Unreadable
from selftaught.training.feature_file import FeatureFile
from selftaught.training.images import RunImages

KEPT_VIEWS = 4
"""Random views of each training image whose features are kept; a request for two gets two of them. Twice as many took
twice the time and gave the same Recall@1 within 0.1."""
BLOCK = 8192
CPU_ROWS = 8
"""Images that a CPU embeds at once: the feature maps of more images leave its caches, which doubles the time."""


class FeatureReader(ImageReader):
    """Answers requests as a reader of images does, but with features: float32, n×1×d, or n×2×d for "random".

    "random" gives two different kept views of an image, chosen by the request's seed alone. The features are computed
    when the first batch is read: by then the encoder must have its weights and be on its device. Features that were
    computed before, with the same weights and from the same files, are reused.
    """

    def __init__(
        self,
        source: ImageReader,
        encoder: Encoder,
        run: Path,
        images: RunImages,
        seed: int,
        device: torch.device,
        reporter: Reporter,
        interrupts: Interrupts,
    ) -> None:
        self.source, self.encoder, self.folder = source, encoder, run / FEATURES
        self.images, self.seed, self.device = images, seed, device
        self.reporter, self.interrupts = reporter, interrupts
        self._kept: dict[str, tuple[np.ndarray, dict[str, int]]] = {}

    @property
    def note(self) -> str | None:
        return self.source.note

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

        They are orthogonal, as random directions would be, but lose less, and a backbone that does not learn cannot
        make up for a loss. A head of another kind, or one wider than the features, keeps its own start.
        """
        head = network.heads["f"]
        if not isinstance(head, nn.Linear) or head.out_features > head.in_features:
            return
        self._kept = self._kept or self._compute()
        directions = broadcast(principal_directions(self._kept["squash"][0][:, 0], head.out_features))
        with torch.no_grad():
            head.weight.copy_(directions)

    def _find(self, request: ViewRequest) -> np.ndarray:
        features, rows = self._kept[request.view]
        views: np.ndarray = features[rows[request.path]]
        return views[random.Random(request.seed).sample(range(KEPT_VIEWS), 2)] if request.view == "random" else views

    def _compute(self) -> dict[str, tuple[np.ndarray, dict[str, int]]]:
        """The features of each kind of view, and the row of each file in them."""
        weights, training = _digest(self.encoder), self.encoder.training
        self.encoder.eval()
        # Random views come last: by then unreadable images are known, and the cache has decoded the others.
        images, measured = self.images.training, self.images.evaluation
        rows = _rows(images)
        kept = {"squash": (self._keep("squash", images, 1, weights), rows)}
        if measured is not None:
            kept["center"] = self._keep("center", measured, 1, weights), _rows(measured)
        kept["random"] = self._keep("random", images, KEPT_VIEWS // 2, weights), rows
        self.encoder.train(training)
        return kept

    def _keep(self, view: View, images: ImageFolder, looks: int, weights: bytes) -> np.ndarray:
        """The features of ``looks`` requests for a view of each image; a request for "random" gives two views."""
        key = run_on_first(lambda: hashlib.sha256(weights + _digest_files(images)).hexdigest()[:16])
        views = looks * (2 if view == "random" else 1)
        kept = FeatureFile(self.folder / f"{view}-{key}.f32", len(images), views, self.encoder.features)
        blocks = run_on_first(kept.prepare)
        left, total = sum(len(kept.images(block)) for block in blocks) * looks, len(images) * looks
        with self.reporter.work(f"computing features of {view} views", total, total - left) as tell:
            failed = self._fill(kept, [blocks[i] for i in shard(len(blocks))], view, images, looks, tell)
        skipped = all_gather_list(failed)  # after this, all processes have written
        if skipped:
            raise Unreadable(images, skipped)
        return kept.array()

    @torch.no_grad()
    def _fill(
        self, kept: FeatureFile, blocks: list[int], view: View, images: ImageFolder, looks: int, tell: Tell
    ) -> list[Skipped]:
        """Compute and write blocks; returns the images that cannot be read, whose blocks stay unfinished."""
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
            tell(len(kept.images(block)))
        return [Skipped(images.files[i], reason) for i, reason in skipped.items()]

    def _encode(self, images: Tensor) -> Tensor:
        """uint8 n×views×3×H×W → n×views×d on the CPU, in full precision, as the finished model computes features."""
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
    for first in range(0, len(features), BLOCK):  # the features may be on the disk, and larger than the memory
        centered = features[first : first + BLOCK] - mean
        products += centered.T @ centered
    vectors = torch.from_numpy(np.linalg.eigh(products)[1])
    return vectors.flip(1)[:, :count].T.float()


def _rows(images: ImageFolder) -> dict[str, int]:
    return {path: row for row, path in enumerate(images.paths())}


def _digest_files(images: ImageFolder) -> bytes:
    """A digest of the files' names, sizes and times of change."""
    digest = hashlib.sha256()
    for path in images.paths():
        digest.update(f"{path}\0{stamp(path)}\0".encode("utf-8", "surrogateescape"))
    return digest.digest()


def _digest(encoder: Encoder) -> bytes:
    """A digest of an encoder's weights, preprocessing and pooling."""
    digest = hashlib.sha256(repr((encoder.preprocessing, encoder.pooling)).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()
