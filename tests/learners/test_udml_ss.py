import sys
from typing import Any

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.udml_ss import turn_views


def grouped(order: list[int]) -> Tensor:
    """Embeddings of twelve images in groups, image i in group order[i]."""
    noise = 0.01 * torch.randn(IMAGES, 6, generator=torch.Generator().manual_seed(0))
    return F.normalize(torch.eye(6)[order] + noise)


def naive_multi_similarity(z: Tensor, labels: Tensor) -> float:
    """α 2, β 40, λ 0.5 on the pairs that are hard by a margin of 0.1, averaged over all rows."""
    s, total = (z @ z.T).double(), 0.0
    for i in range(len(z)):
        positives = [s[i, j] for j in range(len(z)) if j != i and labels[j] == labels[i]]
        negatives = [s[i, j] for j in range(len(z)) if labels[j] != labels[i]]
        near = [p for p in positives if p - 0.1 < max(negatives)]
        far = [n for n in negatives if n + 0.1 > min(positives)]
        pull = sum((torch.exp(-2 * (p - 0.5)) for p in near), torch.zeros(()).double())
        push = sum((torch.exp(40 * (n - 0.5)) for n in far), torch.zeros(()).double())
        total += float(torch.log1p(pull) / 2 + torch.log1p(push) / 40)
    return total / len(z)


def test_pseudo_labels_follow_the_embeddings_and_batches_are_balanced_over_them() -> None:
    learner = small_learner("udml-ss", clusters=3)
    generator = torch.Generator().manual_seed(0)
    for order in ([0, 1, 2] * 4, [0] * 6 + [1] * 4 + [2] * 2):
        plan = learner.batches(grouped(order), generator)
        truth = torch.tensor(order)
        assert torch.equal(learner.labels[:, None] == learner.labels, truth[:, None] == truth)
        assert plan.shape == (3, BATCH)
        assert all(sorted(learner.labels[row].bincount().tolist())[-2:] == [2, 2] for row in plan)


def test_loss_is_multi_similarity_on_both_views_with_their_images_cluster() -> None:
    learner = small_learner("udml-ss", clusters=3).eval()
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    images, ids = batch(first_id=2)
    z = learner.network(images)["f"].detach()
    expected = naive_multi_similarity(z, learner.labels[ids])
    losses = {name: float(loss.detach()) for name, loss in learner(images, ids).items()}
    assert losses["metric"] == pytest.approx(expected, rel=1e-4)
    assert losses["loss"] == pytest.approx(losses["metric"] + 0.1 * losses["rotation"], rel=1e-6)


@pytest.mark.parametrize("changes", [{"rotation_weight": 0.0}, {"train": "heads"}])
def test_without_rotations_the_loss_is_that_of_the_clusters(changes: dict[str, Any]) -> None:
    with_task, without = small_learner("udml-ss", clusters=3).eval(), small_learner("udml-ss", clusters=3, **changes)
    for learner in (with_task, without.eval()):
        learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    assert without.extra_groups(1.0) == []
    losses = without(*batch())
    assert torch.equal(losses["loss"], with_task(*batch())["metric"])
    assert float(losses["rotation"]) == 0


def test_every_first_view_is_turned_by_its_position_in_the_whole_batch() -> None:
    views = torch.rand(10, 3, 5, 5)
    turned = turn_views(views)
    for position in range(10):
        assert torch.equal(turned[position], torch.rot90(views[position], position % 4, (1, 2)))
    assert torch.equal(turn_views(views[3:8], first=3), turned[3:8])
    assert torch.equal(torch.rot90(views, 4, (2, 3)), views)
    mirrored = views.flip(3)
    assert torch.equal(torch.rot90(views, 1, (2, 3)).flip(3), torch.rot90(mirrored, 3, (2, 3))), "hence views, finished"


def test_turns_that_are_not_told_apart_cost_the_logarithm_of_four() -> None:
    learner = small_learner("udml-ss", clusters=3)
    torch.nn.init.zeros_(learner.rotation[2].weight), torch.nn.init.zeros_(learner.rotation[2].bias)
    assert float(learner(*batch())["rotation"].detach()) == pytest.approx(1.386294, abs=1e-6)


def test_turns_of_an_image_that_shows_them_are_learned() -> None:
    ramp = torch.linspace(-1, 1, 8).expand(8, 3, 8, 8)
    probe = torch.nn.Linear(3 * 64, 4)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    for _ in range(50):
        loss = F.cross_entropy(probe(turn_views(ramp).flatten(1)), torch.arange(8) % 4)
        optimizer.zero_grad(), loss.backward(), optimizer.step()
    assert float(loss.detach()) < 0.1


def test_clustering_goes_on_from_the_last_centers() -> None:
    learner = small_learner("udml-ss", clusters=3)
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    before = learner.labels.clone()
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(5))
    assert torch.equal(learner.labels, before), "whatever is drawn, clusters keep their numbers"
    for cluster in range(3):
        torch.testing.assert_close(learner.centers[cluster], grouped([0, 1, 2] * 4)[before == cluster].mean(0))


def test_state_restores_the_labels() -> None:
    learner, other = small_learner("udml-ss", clusters=3), small_learner("udml-ss", clusters=3)
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.labels, learner.labels)
    assert torch.equal(other.centers, learner.centers)
    assert torch.equal(step(other), step(learner))


def test_missing_package_is_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    with pytest.raises(UsageError, match=r"pip install 'selftaught\[research\]'"):
        small_learner("udml-ss", clusters=3)
