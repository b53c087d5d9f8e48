"""The command line."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

MESSAGE = "selftaught: interrupted"
interrupts: list[int] = []
"""Signals so far: a module that is imported meanwhile may turn an interrupt into an error of its own."""


def main() -> NoReturn:
    """Run a command; Ctrl-C ends it in one line, also while modules are still imported."""
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
        # In the middle of its import, which would take no notice. Nothing has been begun that needs an end.
        print(MESSAGE, file=sys.stderr, flush=True)
        os._exit(130)
    raise KeyboardInterrupt
