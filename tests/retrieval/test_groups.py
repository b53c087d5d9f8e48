import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from selftaught.retrieval import Pairs, connect, diameter, find_neighbors, members


@given(st.integers(0, 30), st.integers(1, 6), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_mutual_pairs_are_those_of_a_naive_loop(n: int, k: int, seed: int) -> None:
    vectors = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
    found = find_neighbors(vectors, k)
    pairs = found.mutual_pairs()
    near = [set(row) for row in found.indices.tolist()]
    expected = {(i, j) for i in range(n) for j in range(i + 1, n) if j in near[i] and i in near[j]}
    assert set(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)) == expected
    assert len(pairs) == len(expected)
    assert pairs.distance.tolist() == sorted(pairs.distance.tolist())
    exact = torch.linalg.vector_norm(vectors[pairs.first] - vectors[pairs.second], dim=1)
    assert torch.allclose(pairs.distance, exact, atol=1e-5)


def test_pairs_connect_what_they_lead_to_and_chains_are_as_wide_as_they_are() -> None:
    line = torch.tensor([[0.0], [1.0], [2.0], [9.0], [9.5], [30.0]])
    pairs = find_neighbors(line, 2).mutual_pairs()
    groups = connect(len(line), pairs.under(1.2))
    found = [rows.tolist() for rows in members(groups)]
    assert found == [[0, 1, 2], [3, 4]]
    assert diameter(line[found[0]]) == 2
    assert [rows.tolist() for rows in members(groups, smallest=1)][-1] == [5]
    none = Pairs(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long), torch.empty(0))
    assert len(set(connect(4, none).tolist())) == 4


def test_diameter_of_many_rows_is_that_of_all() -> None:
    points = torch.zeros(1500, 2)
    points[3], points[1490] = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    assert diameter(points) == 5


def test_neighbors_among_some_rows_are_those_found_in_them_alone() -> None:
    vectors = torch.randn(60, 5)
    rows = torch.randperm(60)[:45].sort().values
    left, alone = find_neighbors(vectors, k=20).among(rows), find_neighbors(vectors[rows], k=5)
    torch.testing.assert_close(left.distances[:, :5], alone.distances, rtol=1e-4, atol=1e-5)
    assert torch.equal(left.indices[:, :5], alone.indices)
    ends = left.distances == torch.inf
    assert ends.any()
    assert torch.equal(left.indices[ends], torch.arange(45)[:, None].expand_as(ends)[ends])
    few = left.mutual_pairs().under(1.0)
    assert (few.first < few.second).all()
