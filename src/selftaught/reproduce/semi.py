"""Table 5: labeled images together with unlabeled ones."""

from typing import Any, Literal

from selftaught.reproduce.table import Row, Table, numbers

PARTNERS = {"cub": "nabirds", "cars": "compcars"}
"""The unlabeled data set beside each labeled one."""

_PAIR = ("cub", "cars")
_SETTINGS = {"backbone": "resnet50.tv_in1k", "dim": 512, "freeze_batch_norm": True}


def _row(name: str, label: str, init: Literal["ImageNet", "SwAV"], line: str, settings: dict[str, Any]) -> Row:
    together = settings.get("recipe") == "semi"
    return Row(
        f"{name}-{init}".lower(),
        label,
        f"R50-512, {init}",
        "Semi-supervised" if together else "Supervised",
        numbers(line, _PAIR),
        {**settings, **_SETTINGS},
        "swav" if init == "SwAV" else "auto",
        "both" if together else "labeled",
    )


_CONTRASTIVE, _MS, _PROXY_ANCHOR = ({"method": m} for m in ("contrastive", "multi-similarity", "proxy-anchor"))
_SLADE, _STML = ({"method": method, "recipe": "semi"} for method in ("slade", "stml"))

SEMI = Table(
    "semi",
    "Table 5: semi-supervised metric learning, CUB with NABirds and Cars with CompCars",
    dict.fromkeys(_PAIR, ("map@r", "r_precision", "recall@1")),
    (
        _row("contrastive", "Contrastive", "ImageNet", "25.0 35.8 65.3 | 26.0 36.4 81.2", _CONTRASTIVE),
        _row("ms", "MS", "ImageNet", "26.4 37.5 66.3 | 28.3 38.3 85.2", _MS),
        _row("proxy-anchor", "Proxy-Anchor", "ImageNet", "28.3 39.1 69.9 | 30.5 39.9 87.7", _PROXY_ANCHOR),
        _row("contrastive", "Contrastive", "SwAV", "29.3 39.8 71.2 | 31.7 41.2 88.1", _CONTRASTIVE),
        _row("ms", "MS", "SwAV", "29.2 40.2 70.8 | 33.4 42.7 89.3", _MS),
        _row("proxy-anchor", "Proxy-Anchor", "SwAV", "31.7 42.0 74.6 | 35.1 44.1 90.4", _PROXY_ANCHOR),
        _row("slade", "SLADE (MS)", "ImageNet", "30.9 41.9 69.6 | 32.1 41.5 87.4", _SLADE),
        _row("stml", "STML (MS)", "ImageNet", "37.8 47.9 75.5 | 38.4 46.1 93.0", _STML),
        _row("slade", "SLADE (MS)", "SwAV", "33.9 44.4 74.1 | 38.0 46.9 91.5", _SLADE),
        _row("stml", "STML (MS)", "SwAV", "35.2 45.3 76.2 | 38.2 46.5 93.2", _STML),
    ),
    "The recipes have 30 epochs for the supervised stage of the semi-supervised rows, but 90 for the supervised rows. "
    "SLADE has one round of self-training; how many clusters it has is our choice: 500 of NABirds, 1,000 of CompCars.",
)
