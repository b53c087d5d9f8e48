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
"""The key under which process 0 stores the message with which it failed."""

_asked: tuple[Any, Tensor] | None = None
"""The last question of :func:`any_process`, which the processes are still answering."""
_deciding = False
"""Whether process 0 is within :func:`run_on_first`."""


def world() -> int:
    """How many processes work together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process; process 0 prints and writes."""
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
    rows = rows.detach()
    if world() == 1:
        return rows
    lengths = [len(part) for part in _parts(count)]
    largest = max(lengths)  # a process sends its part padded to that
    padding = [0, 0] * (rows.ndim - 1) + [0, largest - len(rows)]
    everything = rows.new_empty(world() * largest, *rows.shape[1:])
    dist.all_gather_into_tensor(everything, F.pad(rows, padding).contiguous())
    if min(lengths) == largest:
        return everything
    return torch.cat([part[:length] for part, length in zip(everything.split(largest), lengths, strict=True)])


def gather_views(rows: Tensor, images: int) -> Tensor:
    """The embeddings of all processes, with gradient.

    Every process must compute the same loss from the result. The gradient of its own rows is then multiplied by the
    number of processes. Averaged over the processes, as DDP does, gradients equal those of one process with all rows,
    even for parameters that are used only after the gathering.

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
    """Overwrite tensors with those of process 0."""
    if world() > 1:
        for tensor in tensors:
            dist.broadcast(tensor, src=0)


def average(tensors: Iterable[Tensor]) -> None:
    """Give every process the mean over all of them."""
    if world() > 1:
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


def run_on_first(decide: Callable[[], T]) -> T:
    """The result of ``decide``, which only process 0 calls, on every process.

    If it fails there, the others raise :class:`EndedElsewhere`. Within ``decide``, process 0 acts as if it were alone.
    """
    global _deciding
    if world() == 1 or _deciding:
        return decide()
    decided: Any = None
    if rank() == 0:
        _deciding = True
        try:
            decided = decide()
        except BaseException as error:
            broadcast((None, exit_code(error)))
            raise
        finally:
            _deciding = False
    decided, failure = broadcast((decided, 0))
    if failure:
        raise EndedElsewhere(failure)
    return decided  # type: ignore[no-any-return]


def exit_code(error: BaseException) -> int:
    """What the command line exits with after an error."""
    return error.exit_code if isinstance(error, SelftaughtError) else 130 if isinstance(error, KeyboardInterrupt) else 1


def barrier() -> None:
    """Wait until every process is here."""
    if world() > 1:
        dist.all_reduce(torch.zeros(1))  # on the CPU: GPUs may still be at work


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process, the same answer in all; every process must call it equally often.

    Several processes get the answer to the call before. So a stop comes one call late, but no process waits for the
    current step of the slowest one, and no host waits for its GPU: the flag is sent between CPUs.
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
    """Give each process its own random numbers within this context; after it, all processes draw equal ones again."""
    if world() == 1:
        yield
        return
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(torch.randint(2**62, ())) + rank())
        begun = random_states(device)
        yield
        drawn = not all(map(torch.equal, begun, random_states(device)))
    if drawn:  # so that the next context draws other numbers
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
    """Share the message with which this process fails; returns whether process 0 fails with the same and prints it.

    Other processes wait for process 0's message, but no longer than ``patience``.
    """
    if world() == 1:
        return False
    with suppress(RuntimeError):  # the store may be gone, with the process that keeps it
        store = dist.distributed_c10d._get_default_store()
        if rank() == 0:
            store.set(WORDS, message)
            return False
        store.wait([WORDS], patience)
        return bool(store.get(WORDS).decode() == message)
    return False


def random_states(device: torch.device) -> list[Tensor]:
    """The states of the generators of random numbers of the CPU and, if that is the device, of a GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def _parts(count: int) -> list[range]:
    bounds = [r * count // world() for r in range(world() + 1)]
    return [range(first, last) for first, last in pairwise(bounds)]


class _GatherViews(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, images: int) -> Tensor:
        own = shard(images)
        ctx.images, ctx.own, ctx.views = images, own, len(rows) // len(own)
        by_image = rows.view(ctx.views, len(own), -1).transpose(0, 1).contiguous()
        return gather_rows(by_image, images).transpose(0, 1).reshape(ctx.views * images, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        views = gradient.view(ctx.views, ctx.images, -1)
        return views[:, ctx.own.start : ctx.own.stop].flatten(0, 1) * world(), None
