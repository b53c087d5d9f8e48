"""What a person at the terminal sees and does: progress with time left, and Ctrl-C."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from selftaught.errors import Interrupted

PLAIN_INTERVAL = 30.0
"""Seconds between two plain lines about one piece of work."""

ONE_WISH = 1.0
"""Seconds within which a second signal counts as the first one: a launcher repeats a signal that its processes got."""


class Tell(Protocol):
    """Called with how many more items are done; ``word`` replaces the time left on the progress line."""

    def __call__(self, more: int, word: str = "") -> None: ...


class Reporter:
    """Prints what is going on to standard error; silent if quiet."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False, markup=False, emoji=False)
        self._bars: Progress | None = None

    def say(self, text: str) -> None:
        self.console.print(text)

    @contextmanager
    def work(self, label: str, total: int | None, done: int = 0) -> Iterator[Tell]:
        """A piece of work, with time left if its size is known; pieces may be nested."""
        if not self.console.is_terminal or self.console.quiet:
            yield self._plain(label, total, done)
            return
        outermost = self._bars is None
        bars = self._bars = self._bars or self._live()
        task = bars.add_task(label, total=total, completed=done, word="")
        clock = Clock(None if total is None else total - done)

        def tell(more: int, word: str = "") -> None:
            clock.done += more
            bars.update(task, advance=more, word=word or clock.left())

        try:
            yield tell
        finally:
            bars.remove_task(task)
            if outermost:
                bars.stop()
                self._bars = None

    def _live(self) -> Progress:
        bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[word]}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
            console=self.console,
            transient=True,
            expand=True,  # so that a long word is cut off, not the columns before it
        )
        bars.start()
        return bars

    def _plain(self, label: str, total: int | None, done: int) -> Tell:
        clock = Clock(None if total is None else total - done)
        last = time.monotonic()

        def tell(more: int, word: str = "") -> None:
            nonlocal last
            clock.done += more
            if time.monotonic() - last >= PLAIN_INTERVAL:
                last = time.monotonic()
                whole = "" if total is None else f"/{total}"
                self.say(", ".join(filter(None, [f"{label}: {done + clock.done}{whole}", word or clock.left()])))

        return tell


class Clock:
    """Time left of a piece of work, from the pace so far."""

    def __init__(self, total: int | None) -> None:
        self.total, self.done, self.began = total, 0, time.monotonic()

    def left(self) -> str:
        if not self.done or self.total is None:
            return ""
        pace = (time.monotonic() - self.began) / self.done
        return f"{duration(pace * (self.total - self.done))} left"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> None:
    """Print a table; its first ``left`` columns are aligned left, the others right, as numbers are."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*row)
    Console(soft_wrap=True, highlight=False, markup=False).print(table)


def duration(seconds: float) -> str:
    """Seconds as a person writes them.

    Example:
        >>> duration(9.4), duration(75), duration(7300)
        ('9 s', '1 min 15 s', '2 h 1 min')
    """
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Interrupts:
    """Ctrl-C: finish the step, save, say how to go on. A second Ctrl-C stops at once.

    While entered, the first SIGINT or SIGTERM is only noted; :meth:`check` raises it where it is safe.
    """

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self.patient = True
        self._asked_at, self._process = 0.0, os.getpid()
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within this context, the first signal stops at once: for work with nothing to save, or for waiting."""
        self.check()
        self.patient = False
        try:
            yield
        finally:
            self.patient = True

    def check(self) -> None:
        if self.asked:
            raise Interrupted("interrupted")

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in self.SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # in a reader process that has just started: its parent will end it
            return
        now = time.monotonic()
        if not self.patient or (self.asked and now - self._asked_at > ONE_WISH):
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self._asked_at = True, now
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), b"\nstopping as soon as all is saved; once more stops at once\n")
