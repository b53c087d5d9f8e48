"""Several processes as one: each holds a part, all see the whole. In a single process all of this is the identity.

``torchrun`` or ``fabric run`` starts the processes, training connects them: with gloo for what is on the CPU, with NCCL
for what is on GPUs.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from selftaught.errors import EndedElsewhere, SelftaughtError

T = TypeVar("T")

WORDS = "selftaught failed with"
"""Under which name process 0 leaves the words with which it failed."""

_asked: tuple[Any, Tensor] | None = None
"""The question of the last :func:`any_process`, under way."""


def world() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is; 0 is the one that prints and writes."""
    return dist.get_rank() if world() > 1 else 0


def shard(count: int) -> range:
    """This process's contiguous part of ``range(count)``; parts differ by one at most.

    Example:
        >>> shard(5)
        range(0, 5)
    """
    return _parts(count)[rank()]


def gather_rows(rows: Tensor, count: int) -> Tensor:
    """The rows of all processes, in order: the inverse of :func:`shard` along the first axis. No gradient."""
    if world() == 1:
        return rows.detach()
    if len(rows) != len(shard(count)):
        raise ValueError(f"this process has {len(shard(count))} of {count} rows, but {len(rows)} were given")
    return _joined(rows.detach(), count)


def gather_views(rows: Tensor, images: int) -> Tensor:
    """The embeddings of all processes, with gradient.

    Every process is to compute the same loss of the result. The gradient of its own rows is then multiplied by the
    number of processes: averaged over them, as DDP does, gradients are those of one process with all rows, also for
    parameters that are used after the gathering only.

    Args:
        rows: (views × own images)×d, all first views of this process's images, then all second ones.
        images: how many images there are in all processes, split by :func:`shard`.

    Returns:
        (views × images)×d, all first views of all images, then all second ones.
    """
    if world() == 1:
        return rows
    gathered: Tensor = _GatherViews.apply(rows, images)
    return gathered


def broadcast(value: T) -> T:
    """Process 0's value, on every process."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]


def broadcast_tensors(tensors: Iterable[Tensor]) -> None:
    """Overwrite tensors by those of process 0."""
    if world() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


def average(tensors: Iterable[Tensor]) -> None:
    """Give every process the mean over all of them."""
    if world() == 1:
        return
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= world()


def all_gather_list(items: list[T]) -> list[T]:
    """The items of all processes, in their order, on every process."""
    if world() == 1:
        return items
    boxes: list[list[T]] = [[] for _ in range(world())]
    dist.all_gather_object(boxes, items)
    return [item for box in boxes for item in box]


_deciding: list[bool] = []


def run_on_first(decide: Callable[[], T]) -> T:
    """What process 0 gets by calling ``decide``, on every process; the others do not call it.

    If it fails there, the others raise :class:`EndedElsewhere`. Within ``decide`` process 0 is as good as alone.
    """
    if world() == 1 or _deciding:
        return decide()
    if rank():
        value, failure = broadcast((None, 0))
        if failure:
            raise EndedElsewhere(failure)
        return value  # type: ignore[return-value]
    _deciding.append(True)
    try:
        decided = decide()
    except BaseException as error:
        broadcast((None, exit_code(error)))
        raise
    finally:
        _deciding.pop()
    return broadcast((decided, 0))[0]


def exit_code(error: BaseException) -> int:
    """What the command line exits with after an error."""
    return error.exit_code if isinstance(error, SelftaughtError) else 130 if isinstance(error, KeyboardInterrupt) else 1


def barrier() -> None:
    """Wait until every process is here."""
    if world() > 1:
        dist.all_reduce(torch.zeros(1))  # on the CPU: GPUs may still be at work


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process, the same answer in all; every process must call it equally often.

    Several processes get the answer of the call before. So a stop comes one call late, but no process waits for the
    slowest one's present step, and no host for its GPU: the flag travels over the CPU's connection.
    """
    global _asked
    if world() == 1:
        return flag
    before, answer = _asked, torch.tensor([int(flag)])
    _asked = dist.all_reduce(answer, dist.ReduceOp.MAX, async_op=True), answer
    if before is None:
        return False
    before[0].wait()
    return bool(before[1])


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Random draws within are each process's own; after it all processes draw the same again, as before it."""
    if world() == 1:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**62, ())) + rank())
        begun = _random_states(device)
        yield
        drawn = not all(map(torch.equal, begun, _random_states(device)))
    if drawn:  # or the next time would bring the same
        torch.rand(())


def connection_lost(error: BaseException) -> bool:
    """Whether an error only says that another process is gone."""
    if world() == 1:
        return False
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError)
        and any(sign in str(error) for sign in ("gloo", "Connection closed by peer", "Connection reset by peer"))
    )


def first_says(message: str, patience: timedelta) -> bool:
    """Tell the others with which words this process fails; whether process 0 fails with the same, and so says them.

    Other processes wait for process 0's words, but no longer than ``patience``.
    """
    if world() == 1:
        return False
    with suppress(RuntimeError):  # with the process that keeps the store, it may be gone
        store = dist.distributed_c10d._get_default_store()
        if rank() == 0:
            store.set(WORDS, message)
            return False
        store.wait([WORDS], patience)
        return bool(store.get(WORDS).decode() == message)
    return False


def _random_states(device: torch.device) -> list[Tensor]:
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _parts(count: int) -> list[range]:
    bounds = [r * count // world() for r in range(world() + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]


def _joined(rows: Tensor, count: int) -> Tensor:
    """All parts, each of which the processes send padded to the largest."""
    lengths = [len(part) for part in _parts(count)]
    largest = max(lengths)
    padding = [0, 0] * (rows.ndim - 1) + [0, largest - len(rows)]
    everything = rows.new_empty(world() * largest, *rows.shape[1:])
    dist.all_gather_into_tensor(everything, F.pad(rows, padding).contiguous())
    if min(lengths) == largest:
        return everything
    return torch.cat([part[:length] for part, length in zip(everything.split(largest), lengths, strict=True)])


class _GatherViews(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, images: int) -> Tensor:
        own = shard(images)
        if not own or len(rows) % len(own):
            raise ValueError(f"{len(rows)} rows are not the views of {len(own)} images")
        ctx.images, ctx.own, ctx.views = images, own, len(rows) // len(own)
        by_image = rows.view(ctx.views, len(own), -1).transpose(0, 1).contiguous()
        return _joined(by_image, images).transpose(0, 1).reshape(ctx.views * images, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        views = gradient.view(ctx.views, ctx.images, -1)
        return views[:, ctx.own.start : ctx.own.stop].flatten(0, 1) * world(), None
