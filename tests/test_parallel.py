"""Several processes give what one gives."""

from pathlib import Path
from typing import Any

import parallel_checks
import pytest
import torch
from several import in_processes, run_processes

from selftaught.learners import METHODS
from selftaught.parallel import any_process, broadcast, gather_rows, gather_views, rank, run_on_first, shard, world

pytest.importorskip("pytorch_metric_learning")


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return parallel_checks.everything()


@pytest.fixture(scope="module", params=[2, 4])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The same on two or four processes."""
    return in_processes(request.param, tmp_path_factory.mktemp("several") / "here", parallel_checks.everything)


def assert_same(one: Any, other: Any, tolerance: float = 1e-8) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=tolerance)


def test_one_process_is_left_as_it_is() -> None:
    rows = torch.randn(4, 3, requires_grad=True)
    assert (rank(), world(), list(shard(3))) == (0, 1, [0, 1, 2])
    assert gather_views(rows, 2) is rows
    assert torch.equal(gather_rows(rows, 4), rows)
    assert not gather_rows(rows, 4).requires_grad
    assert broadcast("x") == "x"
    assert run_on_first(lambda: 5) == 5
    assert [any_process(flag) for flag in (False, True)] == [False, True]


def test_parts_are_contiguous_and_differ_by_one_at_most(together: list[dict[str, Any]]) -> None:
    parts = [result["shard"] for result in together]
    assert [number for part in parts for number in part] == list(range(10))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_gathered_rows_are_all_first_views_then_all_second_ones_with_their_gradient(
    together: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for result in together:
        for got, expected in zip(result["views"], alone["views"], strict=True):
            assert torch.equal(got, expected)


def test_what_process_0_decides_holds_for_all_and_its_failure_ends_all(together: list[dict[str, Any]]) -> None:
    for number, result in enumerate(together):
        failure = "EndedElsewhere" if number else "UsageError"
        assert result["decided"] == [("from", 0), 10, (failure, 2)]


def test_a_wish_to_stop_reaches_all_processes_at_the_same_call_one_later(together: list[dict[str, Any]]) -> None:
    assert all(result["asked"] == [False, False, False, True, True, True] for result in together)


def test_fewer_images_than_processes_are_embedded(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    assert alone["few"] == [(1, 3), (3, 3)]
    assert all(result["few"] == alone["few"] for result in together)


def test_what_a_method_remembers_is_that_of_process_0(together: list[dict[str, Any]]) -> None:
    assert all(result["common"] == [1.0] for result in together)


def test_draws_within_are_each_processes_own_and_equal_after(together: list[dict[str, Any]]) -> None:
    first, second, after = zip(*(result["randomness"] for result in together), strict=True)
    assert len({*first, *second}) == 2 * len(together)
    assert len(set(after)) == 1


def test_shared_search_finds_the_same_neighbors_and_batches(
    together: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for result in together:
        distances, indices, plan = result["search"]
        assert_same(distances, alone["search"][0], tolerance=1e-6)
        assert torch.equal(indices, alone["search"][1])
        assert torch.equal(plan, alone["search"][2])


def test_batch_norm_is_over_all_processes(together: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    for result in together:
        for got, expected in zip(result["normalized"], alone["normalized"], strict=True):
            assert list(got) == list(expected), "under the same names"
            assert_same(got, expected)


def test_parameters_after_several_steps_are_those_of_one_process(
    together: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for case in together[0]["trained"]:
        state, losses = alone["trained"][case]
        assert len({round(loss, 3) for loss in losses}) > 1, parallel_checks.METHODS[case]
        for result in together:
            assert_same(result["trained"][case][0], state)
            assert result["trained"][case][1] == pytest.approx(losses, rel=1e-9), parallel_checks.METHODS[case]


def test_these_steps_are_those_of_every_method() -> None:
    assert {method for method, _ in parallel_checks.METHODS} == set(METHODS)


def test_unknown_kind_of_batch_norm_is_refused_across_processes_only(
    together: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    assert alone["strange"] == "taken"
    assert "the batch norm Strange is not known to work across processes" in together[0]["strange"]


@pytest.mark.parametrize("how", ["raises", "dies", "all"])
def test_a_process_that_ends_ends_the_others_and_each_thing_is_said_once(tmp_path: Path, how: str) -> None:
    codes = run_processes(2, tmp_path, parallel_checks.failing, how, tmp_path)
    first, last = (Path(tmp_path, f"{number}.log").read_text() for number in range(2))
    gone = "selftaught: another of the 2 processes ended; go on with: selftaught train --resume 'my run'\n"
    said = {"raises": "selftaught: process 2 of 2: cannot read a.jpg\n"}.get(how, "")
    assert (first, last) == (("selftaught: the loss is no longer a number\n" if how == "all" else gone), said)
    assert codes == [1, -9 if how == "dies" else 1]
