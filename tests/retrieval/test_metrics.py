"""Recall@k, MAP@R and R-Precision: worked by hand, against brute force, and what must always hold."""

import brute_force
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from selftaught.retrieval import Scores, map_at_r, neighbors, r_precision, recall_at_k, score

KS = (1, 2, 4, 8)


def test_infinite_and_undefined_embeddings_are_refused_and_those_whose_distances_would_be() -> None:
    for wrong in (float("nan"), float("inf"), 1e20):
        with pytest.raises(ValueError, match="infinite or undefined"):
            recall_at_k(torch.tensor([[0.0], [wrong]]), [0, 0])


def labeled(n: int = 40, classes: int = 9, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Noisy clusters, and two images that are alone in their class."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=draw)
    centers = torch.randn(classes, 4, generator=draw, dtype=torch.float64)
    z = centers[labels] + 0.7 * torch.randn(n, 4, generator=draw, dtype=torch.float64)
    labels[0], labels[n // 2] = 1000, -5
    return z.to(dtype), labels


def as_dict(scores: Scores) -> dict[str, float]:
    return {f"recall@{k}": value for k, value in scores.recall.items()} | {
        "map@r": scores.map_at_r,
        "r-precision": scores.r_precision,
        "queries": scores.queries,
        "excluded": scores.excluded,
    }


@pytest.mark.parametrize("gallery_block", [5, 65536])
@pytest.mark.parametrize("block_bytes", [1, 1000, neighbors.BLOCK_BYTES])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_scores_equal_brute_force(
    gallery_block: int, block_bytes: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbors, "GALLERY_BLOCK", gallery_block)
    monkeypatch.setattr(neighbors, "BLOCK_BYTES", block_bytes)
    z, labels = labeled(dtype=dtype)
    expected = brute_force.metrics(z, labels.tolist(), KS)
    assert as_dict(score(z, labels, KS)) == pytest.approx(expected, rel=1e-12)
    assert expected["excluded"] >= 2


def test_the_single_functions_give_what_score_gives() -> None:
    z, labels = labeled()
    scores = score(z, labels, KS)
    assert recall_at_k(z, labels, KS) == scores.recall
    assert map_at_r(z, labels) == scores.map_at_r
    assert r_precision(z, labels) == scores.r_precision


def test_an_example_worked_by_hand() -> None:
    # On a line:     A        A        B        A        B
    z = torch.tensor([[0.0], [1.0], [1.6], [3.0], [10.0]])
    # From the 1st:  A B A B  precision at its R = 2: 1/2, average 1/1 · 1/2
    # From the 2nd:  B A A B  R = 2: 1/2, average 1/2 · 1/2
    # From the 3rd:  A A A B  R = 1: 0
    # From the 4th:  B A A B  R = 2: 1/2, average 1/2 · 1/2
    # From the 5th:  A B A A  R = 1: 0
    scores = score(z, [0, 0, 1, 0, 1], ks=(1, 2, 3, 4))
    assert scores.recall == pytest.approx({1: 1 / 5, 2: 4 / 5, 3: 4 / 5, 4: 1})
    assert scores.r_precision == pytest.approx((1 / 2 + 1 / 2 + 0 + 1 / 2 + 0) / 5)
    assert scores.map_at_r == pytest.approx((1 / 2 + 1 / 4 + 0 + 1 / 4 + 0) / 5)


def test_map_at_r_counts_ranks_where_r_precision_does_not() -> None:
    # From the image at 0 with R = 3: right, wrong, right in one set; right, right, wrong in the other.
    late, early = torch.tensor([[0.0], [1.0], [2.0], [3.0], [90.0]]), torch.tensor([[0.0], [1.0], [3.0], [2.0], [90.0]])
    labels = [0, 0, 1, 0, 0]
    assert score(late, labels).r_precision == score(early, labels).r_precision
    assert score(late, labels).map_at_r < score(early, labels).map_at_r


def test_an_exact_copy_of_the_query_counts_and_the_query_itself_does_not() -> None:
    z = torch.tensor([[0.0], [0.0], [1.0], [1.0]])
    assert recall_at_k(z, [0, 0, 1, 1], ks=(1,)) == {1: 1.0}
    assert recall_at_k(z, [0, 1, 0, 1], ks=(1,)) == {1: 0.0}


def test_with_ties_scores_lie_between_the_best_and_the_worst_order() -> None:
    # The corners of a square, three of one class: two of them have one right and one wrong at the same distance.
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    scores = score(z, [0, 0, 1, 0], ks=(1, 2, 3))
    assert scores.queries == 3
    assert 1 / 3 <= scores.recall[1] <= 1
    assert scores.recall[2] == scores.recall[3] == 1
    assert score(torch.zeros(6, 2), [0, 0, 0, 1, 1, 1], ks=(5,)).recall == {5: 1.0}


def test_classes_of_one_image_are_left_out_and_counted_but_can_be_retrieved() -> None:
    z = torch.tensor([[0.0], [1.0], [0.4], [9.0]])
    scores = score(z, [7, 7, 3, 5], ks=(1, 2))
    assert (scores.queries, scores.excluded) == (2, 2)
    assert scores.recall == {1: 0.0, 2: 1.0}


def test_a_k_beyond_the_set_is_cut_to_it() -> None:
    z, labels = labeled()
    recall = recall_at_k(z, labels, ks=(39, 40, 1000))
    assert recall == {39: 1.0, 40: 1.0, 1000: 1.0}


def test_labels_may_be_a_list_or_a_tensor_of_any_integers_and_embeddings_of_any_scale() -> None:
    z, labels = labeled()
    expected = score(z, labels)
    assert score(z, labels.tolist()) == expected
    assert score(z, (labels * 1_000_000_007 - 3)) == expected
    assert score(64 * z, labels) == expected


@given(st.integers(0, 2**16), st.integers(6, 40), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_scores_are_bounded_ordered_and_independent_of_row_order(seed: int, n: int, classes: int) -> None:
    z, labels = labeled(n, classes, seed)
    labels[:2] = labels[2]  # at least one class of several images
    scores = score(z, labels, ks=range(1, n))
    recall = list(scores.recall.values())
    assert recall == sorted(recall)
    assert 0 <= recall[0] <= recall[-1] == 1
    assert 0 <= scores.map_at_r <= scores.r_precision <= 1
    assert scores.queries + scores.excluded == n
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert as_dict(score(z[order], labels[order], ks=range(1, n))) == pytest.approx(as_dict(scores), rel=1e-12)


def test_perfect_clusters_score_1_everywhere() -> None:
    labels = torch.arange(5).repeat(4)
    z = 100.0 * labels[:, None] + torch.arange(20)[:, None] / 20
    assert as_dict(score(z, labels, ks=(1,))) == {
        "recall@1": 1,
        "map@r": 1,
        "r-precision": 1,
        "queries": 20,
        "excluded": 0,
    }


@pytest.mark.parametrize(
    ("z", "labels", "ks", "message"),
    [
        (torch.zeros(4, 2), [0, 0, 1], (1,), r"embeddings must be n×d and labels n, but they are \(4, 2\) and \(3,\)"),
        (torch.zeros(4), [0, 0, 1, 1], (1,), "embeddings must be n×d"),
        (torch.zeros(4, 2), [[0], [0], [1], [1]], (1,), "embeddings must be n×d"),
        (torch.zeros(4, 2), [0, 0, 1, 1], (1, 0), "every k must be at least 1"),
        (torch.zeros(4, 2), [0, 1, 2, 3], (1,), "no class has two images"),
        (torch.zeros(0, 2), [], (1,), "no class has two images"),
    ],
)
def test_what_cannot_be_scored_is_refused(z: Tensor, labels: list[int], ks: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        score(z, labels, ks)
