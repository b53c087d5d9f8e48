"""Table 3 and Figure 4: what each part of STML does, and how much k and σ matter."""

from typing import Any

from selftaught.reproduce.table import Row, Table, network, numbers

REMOVALS: dict[str, tuple[str, dict[str, Any]]] = {
    "without-contextual": ("w/o contextual similarity", {"similarity": "pairwise"}),
    "without-pairwise": ("w/o pairwise similarity", {"similarity": "contextual"}),
    "without-relaxed": ("w/o relaxed contrastive loss", {"relaxed": False}),
    "without-momentum": ("w/o momentum update", {"momentum": 0.0}),
    "without-neighbors": ("w/o nearest-neighbor batches", {"batches": "random"}),
    "without-distillation": ("w/o KL divergence", {"distill": False}),
}
"""The six parts that can be removed: name, label, settings."""

_PAIR = ("cub", "cars")


def _row(name: str, label: str, changes: dict[str, Any], line: str = "") -> Row:
    paper = numbers(line, _PAIR) if line else {}
    return Row(name, label, "G512", "", paper, {"method": "stml", **network("G512"), **changes})


def _removed(name: str, line: str) -> Row:
    label, changes = REMOVALS[name]
    return _row(name, label, changes, line)


ABLATION = Table(
    "ablation",
    "Table 3: STML with one part taken away",
    dict.fromkeys(_PAIR, ("recall@1",)),
    (
        _row("stml", "STML", {}, "60.6 | 50.5"),
        _removed("without-contextual", "44.2 | 40.2"),
        _removed("without-pairwise", "56.0 | 45.0"),
        _removed("without-relaxed", "53.4 | 38.7"),
        _removed("without-momentum", "56.8 | 46.1"),
        _removed("without-neighbors", "54.6 | 44.8"),
        _removed("without-distillation", "59.2 | 49.4"),
    ),
)

DEFAULT_K, DEFAULT_SIGMA = 10, 3
KS = (4, 6, 8, 10, 12, 14, 16, 18, 20)
SIGMAS = (0.5, 1, 2, 3, 4, 5)


def _point(k: int = DEFAULT_K, sigma: float = DEFAULT_SIGMA) -> dict[str, Any]:
    """Both settings, even the one that is not varied: a quick table has other defaults."""
    return {"neighbors": k // 2, "sigma": float(sigma)}  # k counts rows, and every image has two


SENSITIVITY = Table(
    "sensitivity",
    "Figure 4: Recall@1 against k and σ",
    dict.fromkeys(_PAIR, ("recall@1",)),
    (
        _row("default", f"k = {DEFAULT_K}, σ = {DEFAULT_SIGMA}", _point(), "60.6 | 50.5"),
        *(_row(f"k-{k}", f"k = {k}", _point(k=k)) for k in KS if k != DEFAULT_K),
        *(_row(f"sigma-{s:g}", f"σ = {s:g}", _point(sigma=s)) for s in SIGMAS if s != DEFAULT_SIGMA),
    ),
    "The paper has the other points only as a drawing.",
)
