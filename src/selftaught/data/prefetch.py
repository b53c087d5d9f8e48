"""Items made in a thread before they are needed."""

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

T = TypeVar("T")


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made in a thread up to ``depth`` before they are asked for.

    Example:
        >>> list(prefetch(iter(range(3))))
        [0, 1, 2]
    """
    waiting: queue.Queue[tuple[bool, object]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(last: bool, value: object) -> bool:
        while not stopped.is_set():
            try:
                waiting.put((last, value), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(False, item):
                    return
            put(True, None)
        except BaseException as error:
            put(True, error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            last, value = waiting.get()
            if isinstance(value, BaseException) and last:
                raise value
            if last:
                return
            yield value  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()
