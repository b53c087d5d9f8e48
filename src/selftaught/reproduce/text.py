"""Results as tables for people: Markdown, and plain text for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from selftaught.data import benchmark_of
from selftaught.reproduce.cells import Cell, Cells
from selftaught.reproduce.quick import EMBEDDED
from selftaught.reproduce.table import CUB_CARS_SOP, FOLDER, Table

DATASETS = {name: benchmark_of(name).title for name in CUB_CARS_SOP} | {
    FOLDER: "Test images",
    EMBEDDED: "Drawn product photos",
}
_WORDS = ("Method", "Network")
"""The columns that hold no numbers."""
_SCORES = {"map@r": "MAP@R", "r_precision": "RP"}
LEGEND = (
    "Percent on the test images after the last epoch; ± is the sample deviation over seeds. In parentheses: the epoch "
    "with the best Recall@1 on the test images, which is chosen by looking at them."
)
COMPARED = " The paper's numbers of STML were chosen in that way."


def grid(table: Table, cells: Cells, dataset: str) -> tuple[list[str], list[list[str]]]:
    """Header and lines of one data set's table; a line with a single entry is the heading of a group."""
    scores = table.columns[dataset]
    architectures = any(row.arch for row in table.rows)
    head = [*_WORDS[: 2 if architectures else 1]]
    for score in scores:
        head += [_SCORES.get(score, score.replace("recall", "R")), *(["paper"] if table.compared else [])]
    lines: list[list[str]] = []
    group = ""
    for row in table.rows:
        columns = cells[row.name].get(dataset, {})
        if not any(cell.failed or cell.last or cell.paper for cell in columns.values()):  # nothing is known of it
            continue
        if row.group != group:
            group = row.group
            lines.append([group])
        line = [row.label, *([row.arch] if architectures else [])]
        for score in scores:
            cell = columns[score]
            line += ["not run" if row.why else _words(cell), *([_number(cell.paper)] if table.compared else [])]
        lines.append(line)
    return head, lines


def markdown(table: Table, cells: Cells, facts: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]]) -> str:
    """The results of a table as a page in Markdown."""
    parts = [f"# {table.title}", LEGEND + (COMPARED if table.compared else "")]
    parts += [table.note] if table.note else []
    parts += facts["incomplete_data"]
    if table.compared and facts["differences"]:
        parts.append("Some settings are not the paper's: they are listed at the end.")
    for dataset in table.columns:
        head, lines = grid(table, cells, dataset)
        rows = [head, ["---" if word in _WORDS else "---:" for word in head]]
        rows += [[f"**{line[0]}**", *[""] * (len(head) - 1)] if len(line) == 1 else line for line in lines]
        parts += [f"## {DATASETS[dataset]}", "\n".join(f"| {' | '.join(map(_escaped, row))} |" for row in rows)]
    reasons = {row.label: row.why for row in table.rows if row.why}
    if reasons:
        parts += ["## Not run", "\n".join(f"- {label}: {why}" for label, why in reasons.items())]
    parts += ["## How", _how(facts)]
    problems: dict[str, list[str]] = {}
    for job in jobs:
        if "error" in job:
            problem = f"{job['status']}: {' '.join(str(job['error']).split())}"
            problems.setdefault(problem, []).append(f"{job['row']} on {job['data']}, seed {job['seed']}")
    if problems:
        parts += ["## Not in the table", "\n".join(f"- {'; '.join(names)} {why}" for why, names in problems.items())]
    return "\n\n".join(parts) + "\n"


def plain(table: Table, cells: Cells, dataset: str) -> str:
    """One data set's table for a terminal: lines with aligned columns."""
    head, lines = grid(table, cells, dataset)
    rows = [head, *(line for line in lines if len(line) > 1)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]

    def aligned(row: list[str]) -> str:
        words = zip(head, row, widths, strict=False)
        return "  ".join(f"{word:<{width}}" if name in _WORDS else f"{word:>{width}}" for name, word, width in words)

    return "\n".join(aligned(row).rstrip() for row in [head, *lines])


def _how(facts: Mapping[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    lines = [f"- command: `{facts['command']}`", f"- {facts['date']}, on {facts['device']}", f"- {packages}"]
    for name, sides in facts["differences"].items():
        here, recipe = (
            ", ".join("automatic" if value is None else str(value) for value in sides[side])
            for side in ("here", "recipe")
        )
        lines.append(f"- {name}: {here}, where the recipes have {recipe}")
    return "\n".join(lines)


def _words(cell: Cell) -> str:
    if cell.mean is None:
        return "failed" if cell.failed else "–"
    deviation = "" if cell.deviation is None else f" ± {cell.deviation:.1f}"
    best = "" if cell.best_mean is None else f" ({cell.best_mean:.1f})"
    some = "" if len(cell.last) == cell.seeds else f", {len(cell.last)} of {cell.seeds} seeds"
    return f"{cell.mean:.1f}{deviation}{best}{some}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _escaped(word: str) -> str:
    return word.replace("|", "\\|")
