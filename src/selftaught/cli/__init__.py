"""The command line."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

MESSAGE = "selftaught: interrupted"
interrupts: list[int] = []
"""Signals so far: a module that is being imported may turn an interrupt into another error."""


def main() -> NoReturn:
    """Run a command; Ctrl-C ends it with one line, even while modules are being imported."""
    signal.signal(signal.SIGINT, _note)
    try:
        from selftaught.cli.main import main as run
    except (Exception, KeyboardInterrupt):
        if not interrupts:
            raise
        print(MESSAGE, file=sys.stderr)
        sys.exit(130)
    run()


def _note(number: int, _frame: FrameType | None) -> None:
    interrupts.append(number)
    if "torch" in sys.modules and "compile" not in vars(sys.modules["torch"]):
        # torch is being imported, which would ignore an exception. Nothing has started that must be cleaned up.
        print(MESSAGE, file=sys.stderr, flush=True)
        os._exit(130)
    raise KeyboardInterrupt
