from pathlib import Path

import pytest
import torch

from selftaught.report import Tile, retrieval_rows
from selftaught.retrieval import nearest

PATHS = [Path(f"{name}.jpg") for name in ("cat1", "dog1", "cat2", "dog2")]
LABELS = ["cat", "dog", "cat", "dog"]


def test_each_row_is_a_query_and_its_neighbors_judged_by_label() -> None:
    indices, distances = torch.tensor([[1, 3], [0, 1]]), torch.tensor([[0.25, 1.5], [0.0, 0.00123]])
    assert retrieval_rows(PATHS, LABELS, indices, distances, queries=[3, 2]) == [
        [Tile(PATHS[3], "dog", "query"), Tile(PATHS[1], "0.25", "right"), Tile(PATHS[3], "1.50", "right")],
        [Tile(PATHS[2], "cat", "query"), Tile(PATHS[0], "0.00", "right"), Tile(PATHS[1], "0.0012 · dog", "wrong")],
    ]


def test_without_labels_nothing_is_judged_and_the_query_is_named() -> None:
    points = torch.tensor([[0.0], [3.0], [1.0], [9.0]])
    distances, indices = nearest(points[:1], points, k=2, exclude=torch.tensor([0]))
    assert retrieval_rows(PATHS, None, indices, distances, queries=[0]) == [
        [Tile(PATHS[0], "cat1.jpg", "query"), Tile(PATHS[2], "1.00"), Tile(PATHS[1], "3.00")]
    ]


def test_no_queries_give_no_rows() -> None:
    assert retrieval_rows(PATHS, LABELS, torch.empty(0, 2, dtype=torch.long), torch.empty(0, 2), queries=[]) == []


def test_exchanged_arguments_are_noticed() -> None:
    with pytest.raises(ValueError, match="exchanged"):
        retrieval_rows(PATHS, LABELS, torch.tensor([[0.25]]), torch.tensor([[1]]), queries=[0])


def test_one_row_of_neighbors_per_query_is_required() -> None:
    with pytest.raises(ValueError, match="q = 2"):
        retrieval_rows(PATHS, LABELS, torch.tensor([[1]]), torch.tensor([[0.5]]), queries=[0, 1])
