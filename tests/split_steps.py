"""A few steps of any method on fixed batches, by one process or shared by several."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from selftaught.learners import METHODS, build_learner, has_setting, make_settings
from selftaught.networks import Encoder, Preprocessing, build_backbone, parameter_groups
from selftaught.networks.batch_norm import with_global_batch_norm
from selftaught.networks.small import SmallNetwork
from selftaught.parallel import shard, world
from selftaught.training.gradient_parts import backward_in_parts
from selftaught.training.optimizer import AdamP
from selftaught.training.processes import DDP_OPTIONS

IMAGES, STEPS = 20, 3


class Exact(nn.Module):
    """A small backbone in float64: AdamP makes steps of full length out of a gradient that is only rounding.

    It has a layer that takes no part, as some published ones have.
    """

    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.unused = inner or SmallNetwork(), nn.Linear(2, 2)

    def forward(self, images: Tensor) -> Tensor:
        x: Tensor = self.inner(images.to(next(self.inner.parameters()).dtype))
        return x


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def trained(method: str, batch: int, **changes: Any) -> tuple[dict[str, Tensor], list[float]]:
    """The learner's state and the losses after some steps with AdamP on batches of so many images.

    With one thread: several add up in another order each time, and AdamP makes a step out of any difference.
    """
    with one_thread():
        return _trained(method, batch, changes)


def _trained(method: str, batch: int, changes: dict[str, Any]) -> tuple[dict[str, Tensor], list[float]]:
    torch.manual_seed(0)
    options: dict[str, Any] = {"dim": 6, "batch_size": batch, "neighbors": 3, "momentum": 0.9, "queue": 30} | changes
    options = {name: value for name, value in options.items() if name in changes or has_setting(method, name)}
    chosen = make_settings(method=method, **options)
    inner = build_backbone("small_abe", "none").module if METHODS[method].ensemble else None
    encoder = Encoder(Exact(inner), Preprocessing(size=16), bool(chosen.freeze_batch_norm))
    classes = torch.arange(IMAGES) % 4 if METHODS[method].labeled else None
    if method == "slade" and classes is not None:
        classes[IMAGES // 2 :] = -1
    learner = build_learner(encoder, chosen, IMAGES, classes).double().train()
    width = {"f": chosen.dim}.get(learner.batch_head, encoder.features)
    points = torch.randn(IMAGES, width, generator=torch.Generator().manual_seed(1)).double()
    plan = learner.batches(nn.functional.normalize(points), torch.Generator().manual_seed(0))
    module: nn.Module = learner
    if world() > 1:
        module = DistributedDataParallel(with_global_batch_norm(learner), **DDP_OPTIONS)
    groups = parameter_groups(learner.network, 1e-3, 1e-3) + learner.extra_groups(1e-3)
    optimizer = AdamP(groups, weight_decay=1e-2, nesterov=True)
    losses = []
    for step in range(STEPS):
        views, ids = drawn(plan[step % len(plan)], step)
        own = shard(len(ids))
        rows = views[own.start : own.stop].transpose(0, 1).flatten(0, 1)
        if chosen.rows_at_once is None:
            result = module(rows, ids.repeat(2))
            result["loss"].backward()
        else:
            result = backward_in_parts(learner, rows, ids.repeat(2), chosen.rows_at_once, nullcontext)
        learner.after_backward()
        optimizer.step()
        optimizer.zero_grad()
        learner.after_step()
        losses.append(float(result["loss"].detach()))
    return {name: tensor.clone() for name, tensor in learner.state_dict().items()}, losses


def drawn(ids: Tensor, step: int) -> tuple[Tensor, Tensor]:
    """Two views of some images, batch×2×3×16×16, and which images they are. Every image has its own color."""
    generator = torch.Generator().manual_seed(step)
    colors = torch.randint(0, 200, (IMAGES, 1, 3, 1, 1), generator=torch.Generator().manual_seed(99))
    noise = torch.randint(0, 56, (len(ids), 2, 3, 16, 16), generator=generator)
    return (colors[ids] + noise).to(torch.uint8), ids
