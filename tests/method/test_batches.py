"""Step 1: queries with their neighbors, against a plain search."""

import naive
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from selftaught.method import NeighborBatchSampler, class_batches, neighbor_batches, random_batches


def embeddings(n: int = 53, d: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("batch_size", "neighbors"), [(10, 5), (12, 2), (6, 6), (7, 1), (53, 53)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_every_query_comes_with_its_nearest_images(batch_size: int, neighbors: int, dtype: torch.dtype) -> None:
    z = embeddings().to(dtype)
    batches = neighbor_batches(z, batch_size, neighbors, seeded())
    assert batches.shape == (53 // batch_size, batch_size)
    for batch in batches.tolist():
        assert batch == naive.batch(naive.matrix(z), batch[::neighbors], neighbors)


@pytest.mark.parametrize(("batch_size", "neighbors"), [(10, 5), (12, 2), (7, 1)])
def test_no_query_comes_twice_in_an_epoch(batch_size: int, neighbors: int) -> None:
    queries = neighbor_batches(embeddings(), batch_size, neighbors, seeded())[:, ::neighbors].flatten()
    assert len(queries) == 53 // batch_size * batch_size // neighbors
    assert len(queries.unique()) == len(queries)


def test_an_image_may_come_twice_in_a_batch_but_not_twice_with_one_query() -> None:
    batches = neighbor_batches(embeddings(), 50, 5, seeded())
    assert len(batches[0].unique()) < 50
    assert all(len(group.unique()) == 5 for group in batches.reshape(-1, 5))


def test_copies_of_an_image_are_its_neighbors_and_it_is_not() -> None:
    z = embeddings(10).repeat(3, 1)
    for group in neighbor_batches(z, 6, 3, seeded()).reshape(-1, 3).tolist():
        query = group[0]
        assert sorted(group[1:]) == [row for row in range(30) if row % 10 == query % 10 and row != query]


def test_the_generator_alone_decides_the_draw() -> None:
    z = embeddings()
    first = neighbor_batches(z, 10, 5, seeded(3))
    torch.manual_seed(99)
    generator = seeded(3)
    assert torch.equal(first, neighbor_batches(z, 10, 5, generator))
    assert not torch.equal(first, neighbor_batches(z, 10, 5, generator)), "the next epoch draws anew"
    assert not torch.equal(first, neighbor_batches(z, 10, 5, seeded(4)))


@pytest.mark.parametrize(("batch_size", "neighbors"), [(10, 4), (4, 5), (10, 0), (0, 0), (10, -5)])
def test_a_batch_that_holds_no_whole_neighborhoods_is_refused(batch_size: int, neighbors: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size = {batch_size} must be a multiple of neighbors = {neighbors}"):
        neighbor_batches(embeddings(), batch_size, neighbors, seeded())


def test_fewer_images_than_a_batch_are_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 10 images needs at least as many images, but there are 9"):
        neighbor_batches(embeddings(9), 10, 5, seeded())


def test_random_batches_hold_each_image_at_most_once() -> None:
    batches = random_batches(53, 10, seeded())
    assert batches.shape == (5, 10)
    assert len(batches.unique()) == 50
    assert batches.min() >= 0
    assert batches.max() < 53
    assert torch.equal(batches, random_batches(53, 10, seeded()))
    assert not torch.equal(batches, random_batches(53, 10, seeded(1)))


def test_sampler_feeds_a_data_loader() -> None:
    z = embeddings()
    sampler = NeighborBatchSampler(z, batch_size=10, neighbors=5, seed=7)
    loader = DataLoader(TensorDataset(torch.arange(53)), batch_sampler=sampler)
    assert len(loader) == len(sampler) == 5
    epochs = [torch.stack([images for (images,) in loader]) for _ in range(2)]
    generator = seeded(7)
    for epoch in epochs:
        assert torch.equal(epoch, neighbor_batches(z, 10, 5, generator))
    assert not torch.equal(*epochs)


def test_sampler_searches_in_the_embeddings_of_its_last_update() -> None:
    sampler = NeighborBatchSampler(embeddings(), batch_size=10, neighbors=5)
    later = embeddings(31, seed=5)
    sampler.update(later)
    assert len(sampler) == 3
    for batch in sampler:
        assert batch == naive.batch(naive.matrix(later), batch[::5], 5)
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="infinite or undefined"):
            sampler.update(later.clone().fill_(wrong))


def test_class_batches_hold_whole_groups_of_different_classes() -> None:
    classes = torch.arange(10).repeat_interleave(6)
    plan = class_batches(classes, 12, 3, seeded())
    assert plan.shape == (5, 12)
    for batch in plan:
        groups = classes[batch].reshape(4, 3)
        assert (groups == groups[:, :1]).all()
        assert len(groups[:, 0].unique()) == 4
        assert len(batch.unique()) == 12, "no image twice where a class has enough"


def test_class_batches_repeat_images_of_small_classes_and_classes_of_small_sets() -> None:
    classes = torch.tensor([0, 0, 1, 1, 1, 1, 1, 1])
    plan = class_batches(classes, 8, 4, seeded())
    assert plan.shape == (1, 8)
    assert classes[plan[0]].bincount().tolist() == [4, 4]
    few = class_batches(classes, 8, 2, seeded())
    assert classes[few[0]].bincount().tolist() == [4, 4]


def test_class_batches_depend_on_the_generator_alone() -> None:
    classes = torch.arange(6).repeat_interleave(5)
    assert torch.equal(class_batches(classes, 10, 5, seeded(3)), class_batches(classes, 10, 5, seeded(3)))
    assert not torch.equal(class_batches(classes, 10, 5, seeded(3)), class_batches(classes, 10, 5, seeded(4)))


@pytest.mark.parametrize(("batch_size", "per_class"), [(7, 2), (40, 4), (4, 0)])
def test_class_batches_that_cannot_be_made_are_refused(batch_size: int, per_class: int) -> None:
    with pytest.raises(ValueError, match="must be a multiple"):
        class_batches(torch.arange(30) % 5, batch_size, per_class, seeded())
