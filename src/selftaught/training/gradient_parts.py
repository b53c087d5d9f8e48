"""The gradient of a whole batch in parts, for networks that would not fit into memory with all views at once.

The loss compares all rows of a batch, but depends on them only through their embeddings. So all rows are embedded
without keeping anything, more of them at once, the loss gives its gradient at the embeddings, and each part goes
through the network once more, now with that gradient. That is a quarter more work, and gives the same gradient if every
row is embedded on its own, both times alike: batch norm must be frozen, and the network must draw no random numbers.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from selftaught.learners import VIEWS, Learner
from selftaught.networks import Encoder
from selftaught.parallel import average, random_states, world
from selftaught.recipes import Settings

MEASURED_VIEWS = 2
PARTS_LOOKED_AT = 5
"""Parts that are embedded together where nothing is kept for the gradient: a view then takes less than a fifth."""

Autocast = Callable[[], AbstractContextManager[Any]]


def backward_in_parts(
    learner: Learner,
    rows: Tensor,
    ids: Tensor,
    at_once: int,
    autocast: Autocast,
    backward: "PlainBackward | None" = None,
) -> dict[str, Tensor]:
    """Compute the losses of a batch, and add their gradient to that of the parameters; returns the losses.

    Args:
        learner: must embed each row on its own, as STML does.
        rows: uint8 n×3×H×W of this process, all first views, then all second ones.
        ids: the image that each row of the whole batch shows, including the rows of other processes.
        at_once: rows that go through the network together.
        backward: takes the parts through the network, the same object in every step.
    """
    with torch.no_grad(), autocast():
        embedded = [learner.embed(some) for some in rows.split(looked_at_once(len(rows), at_once))]
    whole = {name: torch.cat([part[name] for part in embedded]) for name in embedded[0]}
    leaves = {name: whole[name].requires_grad_() for name in learner.network.heads}
    with autocast():
        losses = learner.loss(learner.gather(whole, len(ids) // VIEWS), ids)
    losses[learner.loss_names[0]].backward()
    gradients = {name: leaf.grad.split(at_once) for name, leaf in leaves.items() if leaf.grad is not None}
    (backward or PlainBackward(learner.network, autocast))(rows.split(at_once), gradients)
    average(parameter.grad for parameter in learner.parameters() if parameter.grad is not None)
    return losses


class PlainBackward:
    """Takes parts through a network, and adds the gradients of its parameters that follow from those of its outputs."""

    def __init__(self, network: nn.Module, autocast: Autocast) -> None:
        self.network, self.autocast = network, autocast

    def __call__(self, parts: Sequence[Tensor], gradients: dict[str, Sequence[Tensor]]) -> None:
        for number, part in enumerate(parts):
            with self.autocast():
                outputs = self.network(part)
            known = [pieces[number] for pieces in gradients.values()]
            torch.autograd.backward([outputs[name] for name in gradients], known)


class RecordedBackward(PlainBackward):
    """The same as a CUDA graph, which starts all the work of a part at once: Python takes longer than the GPU.

    Parts must have one size. What cannot be recorded, such as a network that waits for the GPU, is taken plainly.
    """

    graph: torch.cuda.CUDAGraph | None = None
    recordable = True

    def __call__(self, parts: Sequence[Tensor], gradients: dict[str, Sequence[Tensor]]) -> None:
        if self.graph is None and self.recordable:
            self._record(parts[0], {name: pieces[0] for name, pieces in gradients.items()})
        if self.graph is None:
            super().__call__(parts, gradients)
            return
        torch._foreach_zero_(list(self.sums.values()))
        for number, part in enumerate(parts):
            self.part.copy_(part)
            for name, pieces in gradients.items():
                self.gradients[name].copy_(pieces[number])
            self.graph.replay()
        for parameter, total in self.sums.items():
            parameter.grad = total

    def _record(self, part: Tensor, gradients: dict[str, Tensor]) -> None:
        self.part, self.gradients = part.clone(), {name: rows.clone() for name, rows in gradients.items()}
        own = {name: parameter for name, parameter in self.network.named_parameters() if parameter.requires_grad}
        # Leaves of their own over the same memory: gradients of the network's go to the stream of their first use.
        leaves: dict[str, Tensor] = {name: nn.Parameter(parameter.detach()) for name, parameter in own.items()}

        def differentiate() -> dict[str, Tensor]:
            with self.autocast():
                outputs = functional_call(self.network, leaves, (self.part,))
            wanted, known = [outputs[name] for name in gradients], list(self.gradients.values())
            found = torch.autograd.grad(wanted, list(leaves.values()), known, allow_unused=True)
            return {name: gradient for name, gradient in zip(leaves, found, strict=True) if gradient is not None}

        stream, graph = torch.cuda.Stream(part.device), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(part.device))
        try:
            with torch.cuda.stream(stream):  # once without recording, which shows what learns
                self.sums = {own[name]: torch.zeros_like(gradient) for name, gradient in differentiate().items()}
            torch.cuda.empty_cache()  # a graph takes memory of its own, and none that others have left
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):  # other threads copy images
                torch._foreach_add_(list(self.sums.values()), list(differentiate().values()))
            self.graph = graph
        except RuntimeError:
            self.recordable = False


def own_rows(settings: Settings) -> int:
    """The largest number of views of a batch that one process embeds."""
    assert settings.batch_size is not None
    return VIEWS * -(-settings.batch_size // world())


def part_size(settings: Settings) -> int | None:
    """The number of views that go through the network together; None if all of a batch do."""
    size = settings.rows_at_once
    return size if size is not None and size < own_rows(settings) else None


def looked_at_once(rows: int, at_once: int) -> int:
    """The number of views that are embedded together without a gradient, equally many each time if parts are equal.

    Example:
        >>> looked_at_once(240, 48), looked_at_once(240, 40), looked_at_once(10, 4)
        (240, 120, 4)
    """
    return next(n * at_once for n in range(PARTS_LOOKED_AT, 0, -1) if rows % (n * at_once) == 0 or n == 1)


def draws_numbers(encoder: Encoder) -> bool:
    """Whether the network draws random numbers in training, as dropout does, so that no two passes are alike."""
    device = next((parameter.device for parameter in encoder.parameters()), torch.device("cpu"))
    cuda = [device] if device.type == "cuda" else []
    view = torch.zeros(1, 3, *[encoder.preprocessing.size] * 2, dtype=torch.uint8, device=device)
    with torch.no_grad(), torch.random.fork_rng(cuda):
        before = random_states(device)
        encoder.train()(view)
        return not all(map(torch.equal, before, random_states(device)))


def bytes_per_view(encoder: Encoder, bfloat16: bool = False) -> int:
    """Bytes that the network keeps for one view until its gradient is computed."""
    size = encoder.preprocessing.size
    device = next((parameter.device for parameter in encoder.parameters()), torch.device("cpu"))
    own = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    views = torch.zeros(MEASURED_VIEWS, 3, size, size, dtype=torch.uint8, device=device)
    precision = torch.autocast(device.type, torch.bfloat16, enabled=bfloat16)
    with precision, torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        features = encoder(views)
    del features
    return sum(kept.values()) // MEASURED_VIEWS
