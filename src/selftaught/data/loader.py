"""Items before they are needed: batches from worker processes that serve every pass of a run, or from a thread."""

import multiprocessing.queues
import os
import signal
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from selftaught.errors import SelftaughtError

T = TypeVar("T")
FEWER = "end other work on this machine, or use fewer of them (in training: --set workers=N)"
NOT_SENT = 3
"""The exit code of a worker that could not send what it had read."""
SHARED = "most likely because the shared memory ran out (/dev/shm; a container gets more with --shm-size)"
WHY = {-9: "most likely because the memory ran out", -7: SHARED, NOT_SENT: SHARED}
"""Reasons by the exit code of a process, for a signal the negative number: SIGKILL, SIGBUS."""

AHEAD = 3
"""The number of items that are made before they are asked for."""
END = object()


class ReadersEnded(SelftaughtError, RuntimeError):
    """The processes that read images cannot be started, or the system ended one of them."""


class Loader(Generic[T]):
    """Answers batches of requests in workers, in order. These start at the first and stay until :meth:`close`."""

    def __init__(self, answer: Callable[[list[Any]], T], workers: int, pin_memory: bool = False) -> None:
        self.workers = workers
        self._requests: Iterable[list[Any]] = ()
        with _no_advice():
            self._loader: DataLoader[Any] = DataLoader(
                _Requests(),
                batch_sampler=self,
                num_workers=workers,
                persistent_workers=workers > 0,
                pin_memory=pin_memory,
                collate_fn=answer,
                worker_init_fn=_begin_worker,
                generator=torch.Generator(),  # otherwise each pass draws from the global random state
            )

    def __iter__(self) -> Iterator[list[Any]]:
        """The requests of the current pass, as the batch sampler of torch's loader."""
        return iter(self._requests)

    def read(self, requests: Iterable[list[Any]]) -> Iterator[T]:
        """The answers in order.

        Raises:
            ReadersEnded: if workers cannot be started, or one was ended from outside.
        """
        self._requests = requests
        try:
            yield from self._begin()
        except (RuntimeError, OSError, EOFError):
            if code := self._exit_code():
                how = WHY.get(code, f"by signal {-code}" if code < 0 else f"with exit code {code}")
                raise ReadersEnded(f"the system ended a process that reads images, {how}: {FEWER}") from None
            raise

    def start(self) -> None:
        """Start the workers now: later, other threads might hold locks that a new process would wait for forever."""
        for _ in self.read([]):
            pass

    def close(self) -> None:
        """Stop the workers."""
        iterator = self._loader._iterator
        if iterator is not None:
            workers = list(iterator._workers)  # type: ignore[attr-defined]
            iterator._shutdown_workers()  # type: ignore[attr-defined]
            _kill(workers)  # Python would wait at its exit for a worker that is stuck and ignores signals
            self._loader._iterator = None

    def _begin(self) -> Iterator[T]:
        """Begin a pass; the first one starts the workers."""
        if not self.workers or self._loader._iterator is not None:
            return iter(self._loader)
        before = multiprocessing.active_children()
        try:
            with _undisturbed(), _no_advice():
                return iter(self._loader)
        except (OSError, RuntimeError) as error:
            _kill([child for child in multiprocessing.active_children() if child not in before])
            _forget_half_begun(error)
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise ReadersEnded(f"cannot start {self.workers} processes that read images ({reason}): {FEWER}") from None

    def _exit_code(self) -> int:
        """The exit code of a worker that ended, 0 if there is none."""
        workers = getattr(self._loader._iterator, "_workers", ())
        for worker in workers:
            worker.join(0.1)
        return next((worker.exitcode for worker in workers if worker.exitcode), 0)


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


class _Requests(Dataset[Any]):
    """Leaves the work to the function that answers a whole batch."""

    def __getitem__(self, request: Any) -> Any:
        return request


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Within this context, new processes ignore interrupts, and torch does not install its handler for ended processes.

    That handler raises an error anywhere in the program; :meth:`Loader.read` notices an ended process itself.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    reaction = signal.getsignal(signal.SIGCHLD)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, reaction or signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _no_advice() -> Iterator[None]:
    """Within this context, torch does not warn of more workers than cores: a network folder may need them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create")
        yield


def _forget_half_begun(error: BaseException) -> None:
    """Keep torch from shutting down workers that it has not fully started: that fails when the object is deleted."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        begun = frame.f_locals.get("self")
        if begun is not None and hasattr(begun, "_workers_done_event"):
            begun._shutdown = True


def _kill(processes: Iterable[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
            with suppress(OSError):
                process.join()


def _begin_worker(_: int) -> None:
    # A terminal or a scheduler signals the whole process group; only the main process reacts, and ends the workers.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # PyTorch looks at the parent, which of a process from a fork server is the server: it outlives a killed command.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Python would print a traceback and drop what cannot be sent, and the main process would wait for it forever.
    multiprocessing.queues.Queue._on_queue_feeder_error = staticmethod(lambda *_: os._exit(NOT_SENT))  # type: ignore[attr-defined]


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
