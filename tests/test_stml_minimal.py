"""The example takes the very steps of the loop."""

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from split_steps import Exact, one_thread
from torch import Tensor

from selftaught.console import Interrupts, Reporter
from selftaught.data import Batch, ImageFolder, ViewRequest, view_seed, view_seeds
from selftaught.learners import STML, make_settings
from selftaught.networks import Encoder, Preprocessing
from selftaught.training import loop as loop_module
from selftaught.training.assemble import Parts, make_optimizer
from selftaught.training.evaluation import Evaluation
from selftaught.training.logbook import Logbook

IMAGES, EPOCHS = 24, 2
OPTIONS: dict[str, Any] = {"batch_size": 8, "neighbors": 2, "momentum": 0.9, "lr": 1e-3}


@pytest.fixture
def example() -> ModuleType:
    file = Path(__file__).parents[1] / "examples" / "stml_minimal.py"
    spec = importlib.util.spec_from_file_location("stml_minimal", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture(image: int, seed: int) -> Tensor:
    """A view of an image, which has its own color."""
    color = torch.randint(0, 200, (3, 1, 1), generator=torch.Generator().manual_seed(image))
    noise = torch.randint(0, 56, (3, 32, 32), generator=torch.Generator().manual_seed(seed))
    return (color + noise).to(torch.uint8)


class DrawnImages:
    """A reader of such pictures, named by their numbers."""

    note = None

    def read(self, batches: Iterable[list[ViewRequest]]) -> Iterator[Batch]:
        for batch in batches:
            views = [
                [picture(int(Path(path).name), seed + view) for view in range(2 if kind == "random" else 1)]
                for path, kind, seed in batch
            ]
            yield Batch(torch.stack([torch.stack(pair) for pair in views]), list(range(len(batch))), [])


def draw_views(epoch: int, step: int, ids: Tensor) -> Tensor:
    seeds = view_seeds(len(ids), 0, epoch, step)
    pairs = list(zip(ids.tolist(), seeds, strict=True))
    return torch.stack([picture(image, seed + view) for view in range(2) for image, seed in pairs])


def test_the_example_takes_the_same_steps_as_the_loop(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "symptom", lambda *_: None)

    def make_encoder() -> Encoder:
        torch.manual_seed(0)
        return Encoder(Exact(), Preprocessing(size=32))

    with one_thread():
        student, teacher = example.make_networks(make_encoder(), 6)
        student, teacher = student.double(), teacher.double()
        settings = make_settings(dim=6, epochs=EPOCHS, head_lr=1e-3, compile=False, **OPTIONS)
        learner = STML(make_encoder(), settings, IMAGES).double()
        learner.network.load_state_dict(student.state_dict())
        learner.teacher.load_state_dict(teacher.state_dict())

        losses = example.train(
            student,
            teacher,
            IMAGES,
            lambda i: picture(i, 0),
            draw_views,
            EPOCHS,
            seed_of=lambda epoch: view_seed(0, epoch),
            **OPTIONS,
        )
        parts = made_parts(learner, settings, tmp_path)
        loop = loop_module.Loop(parts)
        state = loop.begin()
        loop.go(state)
    steps = IMAGES // 8
    assert len(losses) == steps * EPOCHS
    for epoch, row in enumerate(state.history):
        assert row["loss"] == pytest.approx(sum(losses[epoch * steps :][:steps]) / steps, rel=1e-5)
    for network, expected in ((student, learner.network), (teacher, learner.teacher)):
        for name, tensor in expected.state_dict().items():
            torch.testing.assert_close(network.state_dict()[name], tensor, rtol=0, atol=1e-9)


def made_parts(learner: STML, settings: Any, folder: Path) -> Parts:
    reader: Any = DrawnImages()
    fabric: Any = SimpleNamespace(device=torch.device("cpu"), autocast=nullcontext, backward=Tensor.backward)
    parts: Any = SimpleNamespace(
        folder=folder,
        record=SimpleNamespace(leg=0, pretrained=False, choices=()),
        settings=settings,
        images=ImageFolder(Path("drawn"), tuple(map(str, range(IMAGES)))),
        learner=learner.train(),
        module=learner,
        optimizer=make_optimizer(learner, settings),
        fabric=fabric,
        reader=reader,
        labeled=None,
        logbook=Logbook(folder),
        context=SimpleNamespace(reporter=Reporter(quiet=True), interrupts=Interrupts(), command=""),
    )
    parts.evaluation = Evaluation(parts, reader)
    found: Parts = parts
    return found
