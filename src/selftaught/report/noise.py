"""The noise in a signal."""

import math
from collections.abc import Sequence
from statistics import median

FEWEST = 5
"""The fewest values from which noise can be told from a trend."""


def scatter(values: Sequence[float]) -> float:
    """The standard deviation of a series around its own trend; 0 if there are too few values to tell.

    It uses the median of the second differences: a steady rise or fall does not change it, and one jump hardly does.

    Example:
        >>> scatter([1, 2, 3, 4, 5, 6]), round(scatter([0, 1, 0, 1, 0, 1]), 2)
        (0.0, 1.21)
    """
    if len(values) < FEWEST:
        return 0.0
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return 1.4826 * median(bends) / math.sqrt(6)


def chance(fraction: float, count: int) -> float:
    """The standard error of a fraction of ``count`` photos, not 0 for none or all of them.

    Example:
        >>> round(chance(0.5, 100), 3), round(chance(1.0, 100), 3)
        (0.049, 0.013)
    """
    count += 4
    share = (fraction * (count - 4) + 2) / count  # Agresti and Coull: two more of each kind
    share = min(1.0, max(0.0, share))  # of a file that was edited
    return math.sqrt(share * (1 - share) / count)
