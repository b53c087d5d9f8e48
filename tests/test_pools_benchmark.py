import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

from selftaught.learners.manifold import Pools


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module("pools")


def test_pools_are_scored_by_the_classes_of_their_pairs(pools: ModuleType) -> None:
    mined = Pools(torch.tensor([[1, 2], [0, -1]]), torch.zeros(2, 2), torch.tensor([[3, -1], [-1, -1]]))
    anchors, others, called = pools.pool_pairs(mined)
    pairs = list(zip(anchors.tolist(), others.tolist(), called.tolist(), strict=True))
    assert pairs == [(0, 1, True), (0, 2, True), (1, 0, True), (0, 3, False)]
    assert pools.score_pools(mined, torch.tensor([5, 5, 5, 6])) == 1
    assert pools.score_pools(mined, torch.tensor([5, 5, 6, 6])) == 0.75, "2 is called positive, and is not"
    assert pools.score_pools(mined, torch.tensor([5, 6, 6, 5])) == 0


def test_similarities_of_classes_that_lie_apart_tell_all_pairs(pools: ModuleType) -> None:
    classes = torch.arange(60) % 4
    features = 9 * torch.eye(8)[classes] + torch.rand(60, 8, generator=torch.Generator().manual_seed(0))
    scores = [float(every) for _, every, *_ in pools.measure(features, classes)[:5]]
    assert scores[0] == scores[2] == 1
    assert min(scores) > 0.5


def test_the_benchmark_prints_a_row_for_every_similarity(pools: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert pools.main(["--model", "small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "320 images of 40 classes"
    assert len(lines) == 4 + 8
    assert all(line.count("|") == 5 for line in lines[2:])
