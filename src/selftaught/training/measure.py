"""What is measured of a learner before training and after each epoch."""

from contextlib import nullcontext

import torch
from lightning.fabric import Fabric
from torch import Tensor

from selftaught.data import ImageFolder, Reader, Request, view_seed
from selftaught.data.passes import embed_files
from selftaught.errors import ImageError, SelftaughtError, shown
from selftaught.learners import Learner
from selftaught.retrieval import score
from selftaught.training.health import PROBES, effective_rank, neighbors_kept, probe_neighbors, view_agreement
from selftaught.training.interrupts import Interrupts
from selftaught.training.progress import Reporter

RECALLS = (1, 2, 4, 8, 10, 100)
"""The k of Recall@k that any of the paper's tables has."""


class Measurements:
    """Embeds images with the learner's network and draws numbers from that. Labels are used here alone."""

    def __init__(
        self,
        learner: Learner,
        fabric: Fabric,
        reader: Reader,
        reporter: Reporter,
        interrupts: Interrupts,
        seed: int,
        labeled: ImageFolder | None,
    ) -> None:
        self.learner, self.fabric, self.reader = learner, fabric, reader
        self.reporter, self.interrupts, self.seed, self.labeled = reporter, interrupts, seed, labeled

    def training_set(self, images: ImageFolder) -> dict[str, Tensor]:
        """Each head's embeddings of all training images, whole and squashed."""
        return self._embed_all([Request(images.path(i), "squash") for i in range(len(images))], "embedding all images")

    def signals(
        self, images: ImageFolder, heads: dict[str, Tensor], before: Tensor | None
    ) -> tuple[dict[str, float], Tensor]:
        """The label-free signals, and the probes' neighbors to compare with after the next epoch."""
        generator = torch.Generator().manual_seed(self.seed)
        probes = torch.randperm(len(images), generator=generator)[:PROBES]
        requests = [Request(images.path(i), "random", view_seed(self.seed, i)) for i in probes.tolist()]
        views = self._embed_all(requests, "looking at two views of each image")
        own = probes.to(self.fabric.device)
        agreement = view_agreement(views["f"][0::2], views["f"][1::2], heads["f"], own)
        now = probe_neighbors(heads[self.learner.batch_head], own)
        row = {"effective_rank": effective_rank(heads["f"]), "view_agreement": agreement}
        if before is not None:
            row["neighbors_kept"] = neighbors_kept(before, now)
        return row, now

    def scores(self) -> dict[str, float]:
        """Retrieval metrics on the labeled images, as ``selftaught evaluate`` computes them; nothing without labels."""
        if self.labeled is None:
            return {}
        requests = [Request(self.labeled.path(i), "center") for i in range(len(self.labeled))]
        vectors = self._embed_all(requests, "evaluating", exact=True)["f"]
        try:
            return score(vectors, self.labeled.classes(), RECALLS).row()
        except ValueError as error:
            raise SelftaughtError(f"{shown(self.labeled.root)} cannot be measured on: {error}") from None

    def _embed_all(self, requests: list[Request], label: str, exact: bool = False) -> dict[str, Tensor]:
        heads, failures = self._embed(requests, label, exact)
        if failures:
            index, reason = failures[0]
            raise ImageError(f"{shown(requests[index].path)} could be read before and cannot be now ({reason})")
        return heads

    def _embed(
        self, requests: list[Request], label: str, exact: bool
    ) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
        self.learner.eval()
        with self.reporter.work(label, len(requests)) as tell:

            def advance(more: int) -> None:
                self.interrupts.check()
                tell(more, "")

            with nullcontext() if exact else self.fabric.autocast():
                result = embed_files(
                    self.learner.network, self.reader, requests, device=self.fabric.device, advance=advance
                )
        self.learner.train()
        return result
