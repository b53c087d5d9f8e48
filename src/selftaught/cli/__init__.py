"""The command line."""

from selftaught.cli.main import main

__all__ = ["main"]
