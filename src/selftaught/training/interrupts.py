"""Ctrl-C: finish the step, save, say how to go on. A second Ctrl-C stops at once."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from selftaught.errors import Interrupted

ONE_WISH = 1.0
"""Seconds within which a second signal says the same as the first: a launcher passes on what its processes also got."""


class Interrupts:
    """While entered, the first SIGINT or SIGTERM is only noted; :meth:`check` raises it where it is safe."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.asked = False
        self.patient = True
        self._asked_at, self._process = 0.0, os.getpid()
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, the first signal stops at once: for work that has nothing to save, or waits for processes."""
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a reader that has just been started: its parent will end it
            return
        now = time.monotonic()
        if not self.patient or (self.asked and now - self._asked_at > ONE_WISH):
            raise KeyboardInterrupt
        if not self.asked:
            self.asked, self._asked_at = True, now
            if sys.stderr.isatty():
                os.write(sys.stderr.fileno(), b"\nstopping as soon as all is saved; once more stops at once\n")
