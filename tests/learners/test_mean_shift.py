from typing import Any

import pytest
import torch
from small_learner import BATCH, batch, small_learner, step
from torch import Tensor, nn
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.mean_shift import mean_shift_loss, nearest_in_queue
from selftaught.learners.target import Queue
from selftaught.networks.model import HEADS


def units(n: int, seed: int) -> Tensor:
    return F.normalize(torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)))


def predicted(learner: Any, images: Tensor) -> Tensor:
    """What the predictor makes of embeddings that are not normalized."""
    found: Tensor = learner.predictor(learner.network.heads["f"](learner.network.encoder(images)))
    return found


def layers(learner: Any) -> list[Any]:
    """Projector and predictor."""
    return [learner.network.heads["f"], learner.predictor]


def test_neighbors_are_the_nearest_in_the_queue_with_the_target_itself_first() -> None:
    queue = Queue(length=20, dim=4)
    for seed in range(5):  # wraps
        queue.put(units(7, seed))
    targets = units(7, 9)
    found = nearest_in_queue(targets, queue, 5)
    held = torch.cat([units(7, 3)[-6:], units(7, 4), targets])
    for target, near in zip(targets, found, strict=True):
        assert torch.equal(near[0], target)
        order = sorted(range(20), key=lambda row: float((held[row] - target).norm()))
        torch.testing.assert_close(near, held[order[:5]])


def test_target_comes_first_also_among_its_equals() -> None:
    queue = Queue(length=8, dim=4)
    same = units(1, 0).repeat(4, 1)
    queue.put(same)
    slots = int(queue.count) + torch.arange(4)
    queue.put(same)
    found = queue.similarities(same).scatter(1, slots[:, None], torch.inf).topk(1).indices[:, 0]
    assert torch.equal(found, slots)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_loss_is_the_mean_squared_distance_to_the_neighbors(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    predictions = torch.randn(3, 4, dtype=torch.float64).to(dtype)
    neighbors = F.normalize(torch.randn(3, 5, 4, dtype=torch.float64), dim=2).to(dtype)
    total = 0.0
    for i in range(3):
        unit = predictions[i].double() / predictions[i].double().norm()
        total += sum(float((unit - neighbors[i, j].double()).square().sum()) for j in range(5))
    tolerance = 1e-2 if dtype == torch.bfloat16 else 1e-5
    assert float(mean_shift_loss(predictions, neighbors)) == pytest.approx(total / 15, rel=tolerance)


def test_targets_are_in_the_queue_before_their_neighbors_are_looked_up() -> None:
    msf = small_learner("msf", batch_size=4, queue=10).eval()
    assert msf.top == 4, "no more than a first batch has"
    images, ids = batch()
    targets = msf.target(images[BATCH:])
    loss = msf(images, ids)["loss"]
    assert int(msf.queue.count) == BATCH
    assert torch.equal(msf.queue.rows[:BATCH], targets)
    predictions = predicted(msf, images[:BATCH])
    expected = mean_shift_loss(predictions, targets.repeat(BATCH, 1, 1))  # all four are each one's neighbors
    torch.testing.assert_close(loss, expected)


def test_byol_pulls_to_the_other_view_alone_and_has_no_queue() -> None:
    byol = small_learner("byol").eval()
    assert not hasattr(byol, "queue")
    images, ids = batch()
    predictions = F.normalize(predicted(byol, images[:BATCH]))
    targets = byol.target(images[BATCH:])
    torch.testing.assert_close(byol(images, ids)["loss"], (predictions - targets).square().sum(1).mean())


def test_msf_refuses_a_queue_shorter_than_a_batch() -> None:
    with pytest.raises(UsageError, match="shorter than a batch"):
        small_learner("msf", queue=3)


@pytest.mark.parametrize("method", ["msf", "byol"])
def test_gradient_reaches_query_encoder_and_predictor_but_not_the_target(method: str) -> None:
    learner = small_learner(method)
    learner(*batch())["loss"].backward()
    assert all(p.grad is not None for p in learner.network.parameters())
    assert all(bool(p.grad.any()) for p in learner.network.heads.parameters())
    assert all(bool(p.grad.any()) for p in learner.predictor.parameters())
    assert all(p.grad is None for p in learner.target.parameters())


def test_embedding_is_the_projectors_and_the_predictor_has_its_shape() -> None:
    learner = small_learner("msf")
    features = learner.network.encoder.features
    shapes = [[tuple(layer.weight.shape) for layer in net if isinstance(layer, nn.Linear)] for net in layers(learner)]
    assert shapes == [[(2 * features, features), (6, 2 * features)], [(2 * features, 6), (6, 2 * features)]]
    assert all(isinstance(net[1], nn.BatchNorm1d) for net in layers(learner))
    HEADS[learner.head](features, 6).load_state_dict(learner.network.heads["f"].state_dict())


def test_predictor_learns_at_the_rate_it_is_given_in_a_group_of_its_own() -> None:
    learner = small_learner("msf")
    (group,) = learner.extra_groups(0.25)
    assert group["lr"] == 0.25
    assert {id(p) for p in group["params"]} == {id(p) for p in learner.predictor.parameters()}


def test_batch_norm_of_projector_and_predictor_learns_though_the_backbones_is_frozen() -> None:
    learner = small_learner("byol", freeze_batch_norm=True)
    backbone = learner.network.encoder.backbone.layers[1]
    frozen = backbone.running_mean.clone()
    before = [net[1].running_mean.clone() for net in layers(learner)]
    step(learner)
    for net, start in zip(layers(learner), before, strict=True):
        assert net[1].training
        assert not torch.equal(net[1].running_mean, start)
        assert all(p.requires_grad for p in net[1].parameters())
    assert torch.equal(backbone.running_mean, frozen)


def test_target_normalizes_by_its_batch_in_training_save_where_batch_norm_is_frozen() -> None:
    images, _ = batch()
    for frozen in (False, True):
        learner = small_learner("byol", freeze_batch_norm=frozen)
        network = learner.target.network
        norms = [m for m in network.encoder.modules() if isinstance(m, nn.BatchNorm2d)]
        assert [m.training for m in norms] == [not frozen] * len(norms)
        torch.testing.assert_close(learner.target(images), learner.network(images)["f"])  # both as at the start
        network.heads["f"][1].running_mean.fill_(9)
        torch.testing.assert_close(learner.target(images), learner.network(images)["f"])
        assert not any(module.training for module in learner.eval().target.modules())


def test_embedding_in_evaluation_does_not_depend_on_the_batch() -> None:
    learner = small_learner("byol")
    step(learner)
    images, _ = batch()
    network = learner.eval().network
    torch.testing.assert_close(network(images)["f"][:1], network(images[:1])["f"], rtol=1e-4, atol=1e-5)


def test_target_follows_the_query_encoder_after_the_step() -> None:
    learner = small_learner("byol")
    start = learner.target.network.heads["f"][3].weight.clone()
    step(learner)
    new = learner.network.heads["f"][3].weight.detach()
    assert not torch.equal(new, start)
    torch.testing.assert_close(learner.target.network.heads["f"][3].weight, (start + new) / 2)


def test_state_restores_queue_predictor_and_target() -> None:
    learner, other = small_learner("msf"), small_learner("msf")
    for seed in range(3):
        step(learner, seed)
    other.load_state_dict(learner.state_dict())
    assert torch.equal(step(other, 5), step(learner, 5))
    assert torch.equal(other.queue.rows, learner.queue.rows)
    assert torch.equal(other.target(batch()[0]), learner.target(batch()[0]))
