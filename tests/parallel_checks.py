"""What the tests of several processes run in each of them."""

import importlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from several import PATIENCE
from split_steps import trained
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn

from selftaught.console import Interrupts, Reporter
from selftaught.data import Batch, ImageFolder, ViewRequest
from selftaught.errors import EndedElsewhere, SelftaughtError, UsageError
from selftaught.method import neighbor_batches
from selftaught.method.batches import parallel_search
from selftaught.networks.batch_norm import with_global_batch_norm
from selftaught.parallel import (
    any_process,
    barrier,
    broadcast,
    broadcast_tensors,
    gather_rows,
    gather_views,
    own_randomness,
    rank,
    run_on_first,
    shard,
    world,
)
from selftaught.recipes import Settings
from selftaught.training import processes
from selftaught.training.evaluation import Evaluation
from selftaught.training.processes import ending

CPU = torch.device("cpu")
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("stml", {}),
    ("stml", {"freeze_batch_norm": True}),
    ("stml", {"freeze_batch_norm": True, "rows_at_once": 4}),
    ("multi-similarity", {"both_heads": True}),
    ("proxy-anchor", {}),
    ("abier", {}),
    ("abe", {"dim": 16}),
    ("slade", {"clusters": 3}),
    ("moco", {}),
    ("msf", {}),
    ("nce", {}),
    ("isif", {}),
    ("isif", {"partner": "neighbor", "batch_size": 10, "neighbors": 2}),
    ("exemplar", {}),
    ("mom", {}),
    ("deepcluster", {"clusters": 4}),
    ("udml-ss", {"clusters": 4}),
    ("hyperbolic", {"clusters": 4}),
    ("byol", {}),
    ("contrastive", {}),
]
BATCH = 9  # which neither two nor four processes share evenly


def layers() -> list[nn.Module]:
    torch.manual_seed(0)
    made = [nn.BatchNorm1d(3), nn.BatchNorm2d(3, momentum=None), BatchNormAct2d(3), nn.BatchNorm2d(3, affine=False)]
    for layer in made:
        for tensor in [*layer.parameters()]:
            nn.init.uniform_(tensor, 0.5, 2)
    return [layer.double() for layer in made]


def normalized(rows: int = 7) -> list[dict[str, Tensor]]:
    """What batch norms make of rows that the processes share: outputs, gradients, state."""
    results = []
    for number, layer in enumerate(layers()):
        layer = with_global_batch_norm(layer) if world() > 1 else layer
        for step in range(2):
            generator = torch.Generator().manual_seed(step)
            shape = (2, rows, 3, 2, 2) if number else (2, rows, 3)
            whole, pull = 5 + torch.randn(shape, dtype=torch.double, generator=generator)
            own = slice(shard(rows).start, shard(rows).stop)
            x = whole[own].clone().requires_grad_()
            y = layer(x)
            (y * pull[own]).sum().backward()
        assert x.grad is not None
        layer.eval()
        state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
        outputs = {"y": y.detach(), "x.grad": x.grad, "eval": layer(whole[own]).detach()}
        outputs = {name: gather_rows(tensor, rows) for name, tensor in outputs.items()}
        gradients = {f"{name}.grad": summed(p.grad) for name, p in layer.named_parameters() if p.grad is not None}
        results.append(state | outputs | gradients)
    return results


def summed(part: Tensor) -> Tensor:
    return gather_rows(part[None], world()).sum(0)


def strange() -> str:
    class Strange(nn.BatchNorm2d):
        pass

    try:
        with_global_batch_norm(nn.Sequential(Strange(2)))
    except UsageError as error:
        return str(error)
    return "taken"


def asked_at() -> list[bool]:
    """The last process asks at its third call."""
    return [any_process(rank() == world() - 1 and call >= 2) for call in range(6)]


def decided() -> list[Any]:
    def refuse() -> None:
        raise UsageError("no")

    results: list[Any] = [broadcast(("from", rank())), run_on_first(lambda: rank() + 10)]
    try:
        run_on_first(refuse)
    except (UsageError, EndedElsewhere) as error:
        results.append((type(error).__name__, error.exit_code))
    return results


def randomness() -> list[float]:
    torch.manual_seed(0)
    numbers = []
    for _ in range(2):
        with own_randomness(CPU):
            numbers.append(float(torch.rand(3 + rank())[0]))
    return [*numbers, float(torch.rand(()))]


def search() -> tuple[Tensor, Tensor, Tensor]:
    points = torch.randn(31, 5, generator=torch.Generator().manual_seed(0))
    asked = torch.arange(0, 31, 2)
    plan = neighbor_batches(points, 10, 5, torch.Generator().manual_seed(1), search=parallel_search)
    return *parallel_search(points[asked], points, 4, exclude=asked), plan


def views(images: int = 7) -> tuple[Tensor, Tensor, Tensor]:
    """Rows named 100 × view + image, gathered from the processes' parts, of two views and of one; their gradient."""
    names = (100 * torch.arange(2)[:, None] + torch.arange(images)).double()
    own = names[:, shard(images).start : shard(images).stop]
    rows = own.reshape(-1, 1).requires_grad_()
    gathered = gather_views(rows, images)
    (gathered[:, 0] * torch.arange(2.0 * images)).sum().backward()
    assert rows.grad is not None
    gradient = gather_rows(rows.grad.view(2, -1).T.contiguous(), images).T / world()
    return gathered.detach()[:, 0], gather_views(own[0, :, None], images)[:, 0], gradient


class FewImages:
    """A reader of images that are all the same, for a network that does nothing with them."""

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        for batch in batches:
            yield Batch(torch.ones(len(batch), 1, 3, 4, 4, dtype=torch.uint8), list(range(len(batch))), [])


def few_images() -> list[tuple[int, ...]]:
    """The shapes of embeddings of one image and of three, whatever the number of processes."""
    learner: Any = nn.Module()
    learner.network = lambda images: {"f": images.float().mean((2, 3))}
    fabric: Any = SimpleNamespace(device=CPU, autocast=nullcontext)
    reader: Any = FewImages()
    context = SimpleNamespace(reporter=Reporter(quiet=True), interrupts=Interrupts())
    parts: Any = SimpleNamespace(learner=learner, fabric=fabric, settings=Settings(), labeled=None, context=context)
    evaluation = Evaluation(parts, reader)
    folders = [ImageFolder(Path("nowhere"), tuple("abc"[:count])) for count in (1, 3)]
    return [tuple(evaluation.training_set(folder)["f"].shape) for folder in folders]


def common() -> list[float]:
    """What every process has of a tensor that each had differently."""
    tensor = torch.tensor([1.0 + rank()])
    broadcast_tensors([tensor])
    return tensor.tolist()


def _cases() -> list[tuple[int, tuple[str, dict[str, Any]]]]:
    """The methods by number: all of them, or a third on four processes, which only share batches otherwise."""
    return list(enumerate(METHODS))[:: 3 if world() == 4 else 1]


def everything() -> dict[str, Any]:
    barrier()
    return {
        "shard": list(shard(10)),
        "few": few_images(),
        "common": common(),
        "views": views(),
        "decided": decided(),
        "asked": asked_at(),
        "randomness": randomness(),
        "search": search(),
        "normalized": normalized(),
        "strange": strange(),
        "trained": {case: trained(method, BATCH, **changes) for case, (method, changes) in _cases()},
    }


def failing(how: str, folder: Path) -> None:
    """A training in which the last process fails in its third step, or all do, as the command line runs it."""

    def steps(**_: Any) -> None:
        try:
            for step in range(10**6):
                if step == 3 and how == "all":
                    raise SelftaughtError("the loss is no longer a number")
                if step == 3 and rank() == world() - 1:
                    if how == "raises":
                        raise SelftaughtError("cannot read a.jpg")
                    os.kill(os.getpid(), signal.SIGKILL)
                gather_rows(torch.zeros(1), world())
                any_process(False)
                time.sleep(0.01)
        except BaseException as error:
            raise ending(error, "go on with: selftaught train --resume 'my run'") from None

    if how == "all":  # process 0 will say it, however busy the machine is
        vars(processes)["SAYING"] = timedelta(seconds=PATIENCE)
    log = os.open(folder / f"{rank()}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 2)
    command_line = importlib.import_module("selftaught.cli.main")
    vars(command_line)["app"] = steps
    command_line.main()
