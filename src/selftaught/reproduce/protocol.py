"""The settings that depend on the data set."""

from typing import Any

from selftaught.learners import METHODS, has_setting
from selftaught.reproduce.semi import PARTNERS
from selftaught.reproduce.table import Row

CLUSTERS = {"cub": 100, "cars": 100, "sop": 10_000, "nabirds": 500, "compcars": 1000}
"""The number of clusters for methods that label images by k-means; our choice, about the number of classes."""


def settings_on(row: Row, dataset: str) -> dict[str, Any]:
    """A row's settings, with those that this data set needs.

    Example:
        >>> settings_on(Row("moco", "MoCo", settings={"method": "moco"}), "sop")["head_lr"]
        0.0001
    """
    assert row.settings is not None
    settings = dict(row.settings)
    method = settings["method"]
    if dataset == "sop" and "recipe" not in settings:
        settings["recipe"] = "sop"
        if method != "stml":  # the recipe's values are for STML's teacher and heads
            settings |= {"head_lr": 1e-4} | ({"momentum": 0.999} if has_setting(method, "momentum") else {})
    clustered = PARTNERS.get(dataset) if row.uses == "both" else dataset
    if METHODS[method].clusters and clustered in CLUSTERS:
        settings["clusters"] = CLUSTERS[clustered]
    return settings
