import threading
from collections.abc import Iterator

import pytest

from selftaught.data.loader import AHEAD, prefetch


def test_items_come_in_order_from_another_thread_and_only_a_few_ahead() -> None:
    made: list[int] = []
    threads = set()

    def items() -> Iterator[int]:
        for number in range(20):
            threads.add(threading.current_thread())
            made.append(number)
            yield number

    for number in prefetch(items()):
        assert len(made) <= number + 1 + AHEAD
    assert made == list(range(20))
    assert threading.current_thread() not in threads
    assert len(threads) == 1


def test_an_error_comes_after_the_items_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    found = prefetch(items())
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)


def test_who_stops_early_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    found = prefetch(iter(range(1000)))
    assert next(found) == 0
    assert threading.active_count() == before + 1
    found.close()
    assert threading.active_count() == before
