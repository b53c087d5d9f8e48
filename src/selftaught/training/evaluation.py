"""Measurements of a learner before training and after each epoch."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from selftaught.data import (
    ImageFolder,
    ImageReader,
    Skipped,
    View,
    ViewRequest,
    embed_batches,
    in_batches,
    stack_embeddings,
    view_seed,
)
from selftaught.errors import ImageError, SelftaughtError, printable
from selftaught.networks import HALF
from selftaught.parallel import all_gather_list, gather_rows, run_on_first, shard, world
from selftaught.retrieval import score
from selftaught.training.gradient_parts import part_size
from selftaught.training.label_free import effective_rank, probes_of, view_agreement
from selftaught.training.readout import fit_readout

if TYPE_CHECKING:
    from selftaught.training.assemble import Parts

EMBEDDED_ON_GPU, EMBEDDED_ON_CPU = 256, 64
"""Images embedded at once."""
RECALLS = (1, 2, 4, 8, 10, 100)
"""Every k of Recall@k in the paper's tables."""


class Unreadable(ImageError):
    """Images that could not be read in a pass over them all."""

    def __init__(self, images: ImageFolder, skipped: list[Skipped]) -> None:
        first = skipped[0]
        super().__init__(
            f"{printable(images.root / first.path)} could be read before and cannot be now ({first.reason})"
        )
        self.images, self.skipped = images, skipped


@dataclass(frozen=True)
class FirstPass:
    """The embeddings of the images that could be read in a pass over all, and the network that made them."""

    rows: dict[str, int]
    heads: dict[str, Tensor]
    network: dict[str, Tensor]

    def embeddings_of(self, images: ImageFolder, network: nn.Module) -> dict[str, Tensor] | None:
        """The network's embeddings of the images; None if this pass was made with another network or other images."""
        state = network.state_dict()
        alike = state.keys() == self.network.keys() and all(map(torch.equal, state.values(), self.network.values()))
        if not alike or not self.rows.keys() >= set(images.files):
            return None
        rows = [self.rows[file] for file in images.files]
        return {name: embeddings[rows] for name, embeddings in self.heads.items()}


Passes = dict[tuple[View, str, bool], FirstPass]
"""The passes by view, folder of the images, and whether they were made in full precision."""


class Evaluation:
    """Embeds images with the learner's network and measures it. Labels are used here alone.

    With several processes, each embeds a part of the images, and each gets all embeddings.
    """

    def __init__(self, parts: "Parts", reader: ImageReader, passes: Passes | None = None) -> None:
        """``passes``: keeps passes over the images, to be reused when training restarts without unreadable ones."""
        self.reader, self.passes = reader, passes
        self.learner, self.fabric, self.settings = parts.learner, parts.fabric, parts.settings
        self.labeled, self.context = parts.labeled, parts.context
        most = EMBEDDED_ON_GPU if self.fabric.device.type == "cuda" else EMBEDDED_ON_CPU
        self.batch_size = min(most, part_size(self.settings) or most)
        self.compiled = False
        """Whether the network is compiled, for batches of exactly that size."""
        self.exponent = HALF
        """How much the finished model is whitened, where it is; known once the untrained one has been measured."""

    def training_set(self, images: ImageFolder, view: View = "squash") -> dict[str, Tensor]:
        """Each head's embeddings of all training images, by default whole and squashed."""
        heads = self._embed(images, range(len(images)), view, "embedding all images")
        return {name: rows[:, 0] for name, rows in heads.items()}

    def signals(self, images: ImageFolder, heads: dict[str, Tensor]) -> dict[str, float]:
        """The signals by which a collapse is noticed without labels."""
        generator = torch.Generator().manual_seed(self.settings.seed)
        probes = torch.randperm(len(images), generator=generator)[: probes_of(len(images))]
        views = self._embed(images, probes.tolist(), "random", "looking at two views")["f"]
        own = probes.to(self.fabric.device)
        agreement = view_agreement(views[:, 0], views[:, 1], heads["f"], own)
        return {"effective_rank": effective_rank(heads["f"]), "view_agreement": agreement}

    def labeled_set(self, network: nn.Module | None = None) -> dict[str, Tensor] | None:
        """Each head's embeddings of the labeled images, by the learner's or another network; None without labels."""
        if self.labeled is None:
            return None
        return self.embed(self.labeled, range(len(self.labeled)), "center", "evaluating", network)

    def scores(self, training: dict[str, Tensor], heads: dict[str, Tensor] | None) -> dict[str, float]:
        """Retrieval metrics on the labeled images, as ``selftaught evaluate`` computes them; nothing without labels.

        Args:
            training: each head's embeddings of the training images, for a readout that is fitted on them.
            heads: those of the labeled images.
        """
        labeled = self.labeled
        if labeled is None or heads is None:
            return {}
        vectors = fit_readout(self.learner, self.settings, training, self.exponent)(heads)

        def measure() -> dict[str, float]:
            try:
                return score(vectors, labeled.classes(), RECALLS).row()
            except ValueError as error:
                raise SelftaughtError(f"cannot measure on {printable(labeled.root)}: {error}") from None

        return run_on_first(measure)

    def embed(
        self, images: ImageFolder, indices: Sequence[int], view: View, label: str, network: nn.Module | None = None
    ) -> dict[str, Tensor]:
        """Per head, images×d of one view of each, in full precision, as a finished model embeds."""
        return {name: rows[:, 0] for name, rows in self._embed(images, indices, view, label, True, network).items()}

    def _embed(
        self,
        images: ImageFolder,
        indices: Sequence[int],
        view: View,
        label: str,
        exact: bool = False,
        network: nn.Module | None = None,
    ) -> dict[str, Tensor]:
        """Per head, images×views×d. ``exact``: in full precision, as a finished model embeds."""
        looked = view, str(images.root), exact
        if self.passes and looked in self.passes:
            known = self.passes[looked].embeddings_of(images, self.learner.network)
            if known is not None:
                return known
        own, seed = [indices[i] for i in shard(len(indices))], self.settings.seed
        self.learner.eval()
        with self.context.reporter.work(label, len(own)) as tell:

            def advance(more: int) -> None:
                if world() == 1:  # with several processes, the loop asks all of them together
                    self.context.interrupts.check()
                tell(more)

            # The network is compiled for one size of input only.
            compiled = self.compiled and view == "squash" and not exact
            stance = nullcontext() if compiled else torch.compiler.set_stance("force_eager")
            requests = (ViewRequest(images.path(i), view, view_seed(seed, i) if view == "random" else 0) for i in own)
            with stance, nullcontext() if exact else self.fabric.autocast():
                batches = embed_batches(
                    network or self.learner.network,
                    self.reader.read(in_batches(requests, self.batch_size)),
                    self.fabric.device,
                    fill_to=self.batch_size if compiled else 0,
                )
                heads, failures = stack_embeddings(batches, len(own), advance)
        self.learner.train()
        skipped = [Skipped(images.files[own[i]], reason) for i, reason in failures]
        if self.passes is not None and view != "random" and world() == 1:
            lost = {image.path for image in skipped}
            read = [file for i in own if (file := images.files[i]) not in lost]
            state = {name: tensor.clone() for name, tensor in self.learner.network.state_dict().items()}
            embeddings = {name: rows[:, None] for name, rows in heads.items()}
            self.passes[looked] = FirstPass({file: row for row, file in enumerate(read)}, embeddings, state)
        skipped = all_gather_list(skipped)
        if skipped:
            raise Unreadable(images, skipped)
        # A process without images contributes no rows, and learns their widths from the others.
        widths = dict(all_gather_list([(name, rows.shape[1]) for name, rows in heads.items()]))
        views, empty = 2 if view == "random" else 1, torch.empty(0, device=self.fabric.device)
        parts = {name: heads.get(name, empty.view(0, width)).view(-1, views, width) for name, width in widths.items()}
        return {name: gather_rows(rows, len(indices)) for name, rows in parts.items()}
