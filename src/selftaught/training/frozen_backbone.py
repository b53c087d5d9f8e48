"""Training of the heads alone: the backbone stays as it is, so its features of every image are computed only once.

The loop, the learners and the checkpoints are the same as in all training. Two things differ: the encoder does not
learn, and :class:`FeatureReader` answers requests for views with features, which the encoder returns unchanged.
"""

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from selftaught.console import Interrupts, Reporter, Tell
from selftaught.data import (
    Batch,
    ImageFolder,
    ImageReader,
    Skipped,
    Stamp,
    View,
    ViewRequest,
    embed_batches,
    in_batches,
    stamp,
    view_seed,
)
from selftaught.files import make_folder
from selftaught.model_files import fingerprint
from selftaught.networks import EmbeddingNetwork, Encoder
from selftaught.parallel import all_gather_list, broadcast, rank, run_on_first, shard
from selftaught.run_folder import FEATURES
from selftaught.training.evaluation import Unreadable
from selftaught.training.images import RunImages
from selftaught.vector_log import LoggedBatch, VectorLog, read_log

KEPT_VIEWS = 4
"""Random views of each training image whose features are kept; a request for two gets two of them. Twice as many took
twice the time and gave the same Recall@1 within 0.1."""
KEPT = {"squash": 1, "center": 1, "random": KEPT_VIEWS}
BLOCK = 64
"""Images whose features are computed and written together; a kill loses only the block under way."""


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
        self._kept: dict[str, tuple[list[np.ndarray], dict[str, int]]] = {}
        """Per kind of view: blocks of features, images×views×d, and the number of each file among all their rows."""

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
        blocks, _ = self._kept["squash"]
        directions = principal_directions([block[:, 0] for block in blocks], head.out_features)
        with torch.no_grad():
            head.weight.copy_(broadcast(directions))

    def _find(self, request: ViewRequest) -> np.ndarray:
        blocks, rows = self._kept[request.view]
        block, row = divmod(rows[request.path], BLOCK)
        views: np.ndarray = blocks[block][row]
        return views[random.Random(request.seed).sample(range(KEPT_VIEWS), 2)] if request.view == "random" else views

    def _compute(self) -> dict[str, tuple[list[np.ndarray], dict[str, int]]]:
        about = {"preprocessing": asdict(self.encoder.preprocessing), "pooling": self.encoder.pooling}
        weights, training = fingerprint(about, self.encoder), self.encoder.training
        self.encoder.eval()
        # Random views come last: by then unreadable images are known, and the cache has decoded the others.
        images, measured = self.images.training, self.images.evaluation
        rows = _rows(images)
        kept = {"squash": (self._keep("squash", images, weights), rows)}
        if measured is not None:
            kept["center"] = self._keep("center", measured, weights), _rows(measured)
        kept["random"] = self._keep("random", images, weights), rows
        self.encoder.train(training)
        return kept

    def _keep(self, view: View, images: ImageFolder, weights: str) -> list[np.ndarray]:
        """The features of a view of all images, in blocks; those that are missing are computed.

        A block is taken from a log only as a whole: the same images, computed together, give the same bits.
        """
        width = KEPT[view] * self.encoder.features
        about = {"model": weights, "root": str(images.root), "dim": width}
        files = run_on_first(lambda: [(file, stamp(images.path(i))) for i, file in enumerate(images.files)])
        blocks = list(in_batches(files, BLOCK))

        def find_missing() -> list[int]:
            known = self._read(view, about)
            return [number for number, block in enumerate(blocks) if tuple(block) not in known]

        missing = run_on_first(find_missing)
        left = sum(len(blocks[number]) for number in missing)
        with self.reporter.work(f"computing features of {view} views", len(images), len(images) - left) as tell:
            own = {missing[i]: blocks[missing[i]] for i in shard(len(missing))}
            failed = self._fill(own, view, images, about, tell) if own else []
        skipped = all_gather_list(failed)  # after this, all processes have written
        if skipped:
            raise Unreadable(images, skipped)
        known = self._read(view, about)
        return [known[tuple(block)].reshape(len(block), KEPT[view], -1) for block in blocks]

    def _read(self, view: View, about: dict[str, Any]) -> dict[tuple[tuple[str, Stamp], ...], np.ndarray]:
        """The features in the logs of all processes, now and in earlier attempts."""
        logs = [read_log(path, about, mapped=True) for path in self.folder.glob(f"{view}-*.log") if path.is_file()]
        return {tuple(batch.files): batch.vectors for log in logs if log is not None for batch in log[0]}

    def _fill(
        self,
        blocks: dict[int, list[tuple[str, Stamp]]],
        view: View,
        images: ImageFolder,
        about: dict[str, Any],
        tell: Tell,
    ) -> list[Skipped]:
        """Compute and write blocks; returns the images that cannot be read, whose blocks are left out."""
        looks = KEPT_VIEWS // 2 if view == "random" else 1  # a request for "random" gives two views
        requests = (
            [
                ViewRequest(images.path(i), view, view_seed(self.seed, i, look))
                for look in range(looks)
                for i in range(number * BLOCK, number * BLOCK + len(block))
            ]
            for number, block in blocks.items()
        )
        embedded = embed_batches(self._encode, self.source.read(requests), self.device)
        skipped: list[Skipped] = []
        make_folder(self.folder)
        path = self.folder / f"{view}-{rank()}-{os.urandom(4).hex()}.log"
        with closing(VectorLog(path, **about)) as log:
            for block, batch in zip(blocks.values(), embedded, strict=True):
                if batch.failures:
                    reasons = {block[position % len(block)][0]: reason for position, reason in batch.failures}
                    skipped += [Skipped(file, reason) for file, reason in reasons.items()]
                else:
                    rows = batch.heads["f"].unflatten(0, (looks, len(block), -1)).transpose(0, 1)
                    log.add(LoggedBatch(block, rows.flatten(1).numpy(), []))
                self.interrupts.check()
                tell(len(block))
        return skipped

    def _encode(self, images: Tensor) -> dict[str, Tensor]:
        """uint8 n×3×H×W → n×d on the CPU, in full precision, as the finished model computes features."""
        with torch.autocast(self.device.type, enabled=False):
            return {"f": self.encoder(images).float().cpu()}


def principal_directions(blocks: Sequence[np.ndarray], count: int) -> Tensor:
    """The orthogonal directions of largest variance, count×d, from features in blocks of n×d.

    Example:
        >>> points = np.array([[0.0, 0.0], [3.0, 3.0], [6.0, 6.0], [3.0, 3.1]])
        >>> [round(abs(x), 1) for x in principal_directions([points[:2], points[2:]], 1)[0].tolist()]
        [0.7, 0.7]
    """
    mean = sum(block.sum(0, dtype=np.float64) for block in blocks) / sum(map(len, blocks))
    products = sum((block - mean).T @ (block - mean) for block in blocks)
    vectors = torch.from_numpy(np.linalg.eigh(products)[1])
    return vectors.flip(1)[:, :count].T.float()


def _rows(images: ImageFolder) -> dict[str, int]:
    return {path: row for row, path in enumerate(images.paths())}
