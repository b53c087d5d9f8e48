"""One training loop for every method, with checkpoints and signals that need no labels."""

from selftaught.training.train import train

__all__ = ["train"]
