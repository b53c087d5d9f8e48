import pytest
import torch
from small_learner import BATCH, batch, small_learner, step
from torch.nn import functional as F

from selftaught.errors import UsageError
from selftaught.learners.moco import info_nce
from selftaught.learners.target import Queue
from selftaught.networks.model import mlp_head


def test_queue_keeps_the_latest_and_drops_the_oldest_first_also_where_it_wraps() -> None:
    queue, latest = Queue(length=7, dim=2), torch.zeros(0, 2)
    for number in range(6):
        rows = torch.arange(3 * number, 3 * number + 3.0)[:, None].repeat(1, 2)
        slots = queue.put(rows)
        assert torch.equal(queue.rows[slots], rows)
        latest = torch.cat([latest, rows])[-7:]
        held = queue.rows[torch.arange(7) < queue.count]
        assert sorted(held[:, 0].tolist()) == latest[:, 0].tolist()


def test_empty_slots_of_the_queue_take_no_part() -> None:
    queue = Queue(length=5, dim=2)
    queue.put(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    similarities = queue.similarities(torch.tensor([[1.0, 2.0]]))
    assert similarities.tolist() == [[1.0, 2.0, -torch.inf, -torch.inf, -torch.inf]]


def test_queue_shorter_than_a_batch_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="queue 3 is shorter than a batch of 4 images: give at least 4"):
        small_learner("moco", queue=3)
    with pytest.raises(ValueError, match="do not fit"):
        Queue(length=2, dim=1).put(torch.zeros(3, 1))


@pytest.mark.parametrize("temperature", [0.07, 0.2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_info_nce_against_a_loop(dtype: torch.dtype, temperature: float) -> None:
    torch.manual_seed(0)
    queries, keys, queue = (F.normalize(torch.randn(n, 8, dtype=torch.float64)).to(dtype) for n in (5, 5, 9))
    total = 0.0
    for query, key in zip(queries.double(), keys.double(), strict=True):
        others = sum(float((query @ row / temperature).exp()) for row in queue.double())
        own = float((query @ key / temperature).exp())
        total -= float(torch.tensor(own / (own + others)).log())
    negatives = queries.double() @ queue.double().T
    tolerance = 1e-4 if dtype == torch.float64 else 1e-2
    assert float(info_nce(queries, keys, negatives, temperature)) == pytest.approx(total / 5, rel=tolerance)


def test_keys_join_the_queue_after_the_loss_and_are_the_negatives_of_the_next_step() -> None:
    moco = small_learner("moco")
    assert float(step(moco)) == 0, "no negatives yet"
    keys = moco.target(batch()[0][BATCH:])
    assert int(moco.queue.count) == BATCH
    images, _ = batch(seed=2)
    moco.eval()
    before = moco.queue.rows.clone()
    queries, own = moco.network(images[:BATCH])["f"], moco.target(images[BATCH:])
    expected = info_nce(queries, own, queries @ before[:BATCH].T, temperature=0.07)
    torch.testing.assert_close(moco(*batch(seed=2))["loss"], expected)
    assert torch.equal(moco.queue.rows, before), "backward still needs the queue"
    assert keys.shape == before[:BATCH].shape
    assert float(step(moco, seed=2)) > 0
    assert int(moco.queue.count) == 2 * BATCH


def test_gradient_reaches_the_query_encoder_alone_and_keys_follow_it_after_the_step() -> None:
    moco = small_learner("moco")
    step(moco)
    moco(*batch(seed=2))["loss"].backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in moco.network.heads.parameters())
    assert all(p.grad is None for p in moco.target.parameters())
    assert not any(module.training for module in moco.target.modules())
    old, leader = (net.heads["f"][0].weight.detach().clone() for net in (moco.target.network, moco.network))
    with torch.no_grad():
        moco.network.heads["f"][0].weight.add_(1)
    moco.after_step()
    torch.testing.assert_close(moco.target.network.heads["f"][0].weight, (old + leader + 1) / 2)


def test_embedding_is_normalized_and_its_head_has_two_layers() -> None:
    moco = small_learner("moco")
    z = moco.network(batch()[0])["f"]
    torch.testing.assert_close(z.norm(dim=1), torch.ones(2 * BATCH))
    assert moco.network.heads["f"][0].weight.shape == mlp_head(256, 6)[0].weight.shape


def test_state_restores_the_queue_and_the_next_loss() -> None:
    moco, other = small_learner("moco"), small_learner("moco")
    for seed in range(3):  # twelve keys in a queue of ten
        step(moco, seed)
    other.load_state_dict(moco.state_dict())
    assert torch.equal(other.queue.rows, moco.queue.rows)
    assert int(other.queue.count) == 3 * BATCH
    assert torch.equal(step(other, 5), step(moco, 5))
    assert torch.equal(other.queue.rows, moco.queue.rows)
