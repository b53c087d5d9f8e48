import math

import pytest
import torch
from small_learner import BATCH, IMAGES, batch, small_learner, step
from torch import Tensor
from torch.nn import functional as F

from selftaught.learners.deepcluster import CLASSIFIER_RATE, TEMPERATURE, uniform_batches


def grouped(order: list[int]) -> Tensor:
    """Embeddings of twelve images in groups, image i in group order[i]."""
    noise = 0.01 * torch.randn(IMAGES, 6, generator=torch.Generator().manual_seed(0))
    return F.normalize(torch.eye(6)[order] + noise)


def same(groups: Tensor) -> Tensor:
    return groups[:, None] == groups


def test_pseudo_labels_follow_the_embeddings_at_every_epoch() -> None:
    learner = small_learner("deepcluster", clusters=3)
    generator = torch.Generator().manual_seed(0)
    for order in ([0, 1, 2] * 4, [0] * 4 + [1] * 4 + [2] * 4):
        learner.batches(grouped(order), generator)
        assert torch.equal(same(learner.labels), same(torch.tensor(order)))


def test_classifier_starts_anew_at_every_reassignment() -> None:
    learner = small_learner("deepcluster", clusters=3)
    generator = torch.Generator().manual_seed(0)
    learner.batches(grouped([0, 1, 2] * 4), generator)
    torch.nn.init.constant_(learner.classifier.weight, 50)
    learner.batches(grouped([0, 1, 2] * 4), generator)
    assert learner.classifier.weight.abs().max() < 1
    assert learner.classifier.weight.requires_grad


def test_classifier_takes_a_plain_gradient_step_outside_the_optimizer() -> None:
    learner = small_learner("deepcluster", clusters=3)
    assert learner.extra_groups(0.25) == []
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    start = learner.classifier.weight.detach().clone()
    learner(*batch())["loss"].backward()
    gradient = learner.classifier.weight.grad.clone()
    head = learner.network.heads["f"].weight.grad.clone()
    learner.after_backward()
    assert gradient.any()
    torch.testing.assert_close(learner.classifier.weight.detach(), start - CLASSIFIER_RATE * gradient)
    assert learner.classifier.weight.grad is None
    assert torch.equal(learner.network.heads["f"].weight.grad, head), "the network's are left to the optimizer"


@pytest.mark.parametrize("common", [0.0, 1.0, 3.0])
def test_a_new_classifier_learns_within_an_epoch_of_25_steps(common: float) -> None:
    """On embeddings of length 1 that share a direction not at all, half, or nearly all."""
    n, clusters, dim = 1500, 50, 64
    generator = torch.Generator().manual_seed(0)
    centers, labels = F.normalize(torch.randn(clusters, dim, generator=generator)), torch.arange(n) % clusters
    embeddings = F.normalize(
        centers[labels] + common * torch.eye(dim)[0] + 0.05 * torch.randn(n, dim, generator=generator)
    )
    learner = small_learner("deepcluster", clusters=clusters, dim=dim, neighbors=2)
    torch.nn.init.normal_(learner.classifier.weight, 0, 0.01)
    losses = []
    for rows in uniform_batches(labels, 60, generator):
        loss = F.cross_entropy(learner.classifier(embeddings[rows]) / TEMPERATURE, labels[rows])
        loss.backward()
        learner.after_backward()
        losses.append(float(loss.detach()))
    assert len(losses) == 25
    assert losses[-1] < math.log(clusters) - 0.3
    assert max(losses) < math.log(clusters) + 1, "does not overshoot much"


def test_loss_is_the_cross_entropy_of_both_views_with_their_images_cluster() -> None:
    learner = small_learner("deepcluster", clusters=3).eval()
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    images, ids = batch(first_id=3)
    scores = learner.classifier(learner.network(images)["f"]) / TEMPERATURE
    expected = -sum(scores[row].log_softmax(0)[learner.labels[ids[row]]] for row in range(2 * BATCH)) / (2 * BATCH)
    torch.testing.assert_close(learner(images, ids)["loss"], expected)


def test_batches_hold_every_cluster_equally_often_whatever_its_size() -> None:
    clusters = torch.tensor([0] * 50 + [1] * 5 + [2] * 5)
    plan = uniform_batches(clusters, 6, torch.Generator().manual_seed(0))
    assert plan.shape == (10, 6)
    assert clusters[plan.flatten()].bincount().tolist() == [20, 20, 20]
    large = plan.flatten()[clusters[plan.flatten()] == 0]
    assert len(large.unique()) == 20, "no image of a large cluster twice"
    assert len({tuple(row) for row in clusters[plan].tolist()}) > 1, "in random order"


def test_state_restores_labels_and_classifier() -> None:
    learner, other = small_learner("deepcluster", clusters=3), small_learner("deepcluster", clusters=3)
    learner.batches(grouped([0, 1, 2] * 4), torch.Generator().manual_seed(0))
    step(learner)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.labels, learner.labels)
    assert torch.equal(step(other, 2), step(learner, 2))
