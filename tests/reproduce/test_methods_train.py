import json
from pathlib import Path

import pytest

from selftaught.reproduce.jobs import make_jobs
from selftaught.reproduce.quick import Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.tables import TABLES, find_rows
from selftaught.training import train

QUICK_TABLES = {name: quick_table(table) for name, table in TABLES.items()}
ALIKE = {"dim", "neighbors", "sigma", "backbone", "freeze_batch_norm", "crop_scale", "crop_shape", "color", "pooling"}
ALIKE |= {"lr", "head_lr", "weight_decay", "schedule", "temperature", "batch_size"}
"""Settings that take a row along no other path."""
QUICK = Quick(products=16, photos=4, epochs=1)


def distinct_rows() -> list[tuple[str, str]]:
    """One of the rows that differ only in numbers, by the names of its table and itself."""
    found: dict[str, tuple[str, str]] = {}
    for name in sorted(QUICK_TABLES, key=lambda name: name != "methods"):
        for row in QUICK_TABLES[name].rows:
            assert row.settings is not None
            path = {setting: value for setting, value in sorted(row.settings.items()) if setting not in ALIKE}
            found.setdefault(repr((path, row.uses)), (name, row.name))
    return list(found.values())


ROWS = distinct_rows()


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    QUICK.draw(folder / "photos", lambda _: None)
    return folder


@pytest.mark.parametrize(("table", "name"), ROWS)
def test_a_row_trains_and_is_measured(table: str, name: str, out: Path) -> None:
    rows = find_rows(QUICK_TABLES[table], (name,))
    assert rows[0].settings is not None
    (job,) = make_jobs(Request(QUICK_TABLES[table], rows, out, out / table, quick=QUICK))
    sources = {what: value for what, value in job.arguments.items() if str(value).startswith("folder:")}
    moved = {what: value.replace(str(out / table), str(out)) for what, value in sources.items()}  # drawn once for all
    near = rows[0].settings.get("neighbors", 2)
    tiny = {
        "dim": 8,
        "neighbors": near,
        "batch_size": near * max(2, 8 // near),
        "workers": 0,
        "device": "cpu",
        "quiet": True,
    }
    train(out=job.folder, **{**job.arguments, **moved, **tiny})
    scores = json.loads((job.folder / "start.json").read_text())
    if name != "start":
        scores = json.loads((job.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"recall@1", "map@r", "r_precision"} <= set(scores)
    assert (job.folder / "model.json").exists()
