"""Items made in a thread before they are needed."""

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
AHEAD = 3
"""The number of items that are made before they are asked for."""
END = object()


def prefetch(items: Iterator[T]) -> Generator[T]:
    """The same items, made in a thread, AHEAD of them before they are asked for.

    Example:
        >>> list(prefetch(iter(range(5))))
        [0, 1, 2, 3, 4]
    """
    with ThreadPoolExecutor(1) as thread:
        waiting = deque(thread.submit(next, items, END) for _ in range(AHEAD))
        try:
            while (item := waiting.popleft().result()) is not END:
                waiting.append(thread.submit(next, items, END))
                yield item  # type: ignore[misc]
        finally:
            for future in waiting:
                future.cancel()
