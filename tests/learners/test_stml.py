from typing import Any

import pytest
import torch
from torch import Tensor, nn

from selftaught.learners import STML, make_settings
from selftaught.networks import EmbeddingNetwork, Encoder, Preprocessing
from selftaught.networks.small import SmallNetwork


def learner(**changes: Any) -> STML:
    torch.manual_seed(0)
    options: dict[str, Any] = {"dim": 4, "batch_size": 4, "neighbors": 2, "momentum": 0.5} | changes
    return STML(Encoder(SmallNetwork(), Preprocessing(size=32)), make_settings(**options))


def batch() -> tuple[Tensor, Tensor]:
    images = torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return images, torch.arange(4).repeat(2)


def head(network: EmbeddingNetwork) -> Tensor:
    layer = network.heads["g"]
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach()


def test_student_and_teacher_start_with_one_backbone_and_heads_of_their_own() -> None:
    stml = learner()
    student, teacher = stml.network.encoder.state_dict(), stml.teacher.encoder.state_dict()
    assert all(torch.equal(student[name], teacher[name]) for name in student)
    assert not torch.equal(head(stml.network), head(stml.teacher))
    assert set(stml.teacher.heads) == {"g"}
    assert head(stml.network).shape == (256, 256)


def test_teacher_learns_from_no_gradient_and_stays_in_eval_mode() -> None:
    stml = learner().train()
    assert stml.network.training
    assert not any(module.training for module in stml.teacher.modules())
    stml(*batch())["loss"].backward()
    assert all(p.grad is None for p in stml.teacher.parameters())
    assert all(p.grad is not None for p in stml.network.parameters())


@pytest.mark.parametrize(("update", "averages"), [("before_step", "old"), ("after_step", "new")])
def test_teacher_averages_the_student_before_or_after_the_step(update: str, averages: str) -> None:
    stml = learner(teacher_update=update).train()
    optimizer = torch.optim.SGD(stml.network.parameters(), lr=0.1)
    start, old = head(stml.teacher).clone(), head(stml.network).clone()
    stml(*batch())["loss"].backward()
    stml.after_backward()
    optimizer.step()
    stml.after_step()
    new = head(stml.network)
    assert not torch.equal(old, new)
    expected = (start + (old if averages == "old" else new)) / 2
    torch.testing.assert_close(head(stml.teacher), expected)


def test_batches_follow_the_settings() -> None:
    embeddings = torch.arange(12.0)[:, None] * 10 + torch.tensor([[0.0]])
    plan = learner().batches(embeddings, torch.Generator().manual_seed(0))
    assert plan.shape == (3, 4)
    assert ((plan[:, 0::2] - plan[:, 1::2]).abs() == 1).all(), "each query stands beside its nearest image"
    random = learner(batches="random").batches(embeddings, torch.Generator().manual_seed(0))
    assert sorted(random.flatten().tolist()) == list(range(12))


def test_whitened_batches_put_images_together_that_one_strong_direction_keeps_apart() -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randn(20, 7, generator=generator).repeat_interleave(2, 0)
    embeddings = torch.cat([10 * torch.randn(40, 1, generator=generator), pairs], 1)

    def pairs_found(stml: STML) -> int:
        rows = stml.place(embeddings)
        plan = stml.batches(rows + rows, torch.Generator().manual_seed(0))  # as if of two views
        return int((plan[:, 0::2] // 2 == plan[:, 1::2] // 2).sum())

    assert pairs_found(learner(batches="whitened", dim=8)) > 2 * pairs_found(learner(dim=8))


def test_whitened_batches_look_at_centers_too_unless_only_heads_learn() -> None:
    assert learner(batches="whitened").more_views == ("center",)
    assert learner(batches="whitened", train="heads").more_views == learner().more_views == ()


def test_images_that_are_all_alike_are_placed_all_the_same() -> None:
    assert learner(batches="whitened").place(torch.ones(12, 8)).shape == (12, 4)


def test_a_centered_teacher_is_compared_without_what_all_its_embeddings_share() -> None:
    plain, centered = learner(sigma=1.0), learner(sigma=1.0, center=True)
    with torch.no_grad():
        embeddings = plain.embed(batch()[0])
    ids = batch()[1]
    shifted = {**embeddings, "teacher": embeddings["teacher"] - embeddings["teacher"].mean(0)}
    far = {**embeddings, "teacher": embeddings["teacher"] + 7}
    assert plain.loss(embeddings, ids)["loss"] != centered.loss(embeddings, ids)["loss"]
    for name, loss in plain.loss(shifted, ids).items():
        torch.testing.assert_close(centered.loss(embeddings, ids)[name], loss)
        torch.testing.assert_close(centered.loss(far, ids)[name], loss, rtol=1e-3, atol=1e-4)
