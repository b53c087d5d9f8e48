import json
from pathlib import Path

import pytest

from selftaught.reproduce.analysis import REMOVALS
from selftaught.reproduce.plan import make_jobs
from selftaught.reproduce.quick import Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.tables import METHODS, find_rows
from selftaught.training import train

TABLE = quick_table(METHODS)
VARIANTS = ("stml-paper", *REMOVALS)
"""Rows that are STML with a setting or two changed."""
ROWS = [row.name for row in TABLE.rows if row.name not in VARIANTS]
QUICK = Quick(products=16, photos=4, epochs=1)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("methods")
    QUICK.draw(folder / "photos", lambda _done, _total: None)
    return folder


@pytest.mark.parametrize("name", ROWS)
def test_a_row_trains_and_is_measured(name: str, out: Path) -> None:
    (job,) = make_jobs(Request(TABLE, find_rows(TABLE, (name,)), out, out, quick=QUICK))
    tiny = {"dim": 8, "batch_size": 8, "neighbors": 2, "workers": 0, "device": "cpu", "quiet": True}
    train(out=job.folder, **{**job.arguments, **tiny})
    scores = json.loads((job.folder / "start.json").read_text())
    if name != "start":
        scores = json.loads((job.folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert {"recall@1", "map@r", "r_precision"} <= set(scores)
    assert (job.folder / "model.json").exists()
