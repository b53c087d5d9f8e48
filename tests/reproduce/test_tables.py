import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from selftaught import recipes
from selftaught.errors import UsageError
from selftaught.reproduce.quick import EMBEDDED, Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.table import Row, Table
from selftaught.reproduce.tables import METHODS, TABLES, find_rows, find_table

CASES = [(name, row.name) for name, table in TABLES.items() for row in find_rows(table, ())]


def row_of(table: str, name: str) -> Row:
    return find_rows(find_table(table), (name,))[0]


def request_for(table: Table) -> Request:
    return Request(table, find_rows(table, ()), Path("data"), Path("out"))


@pytest.mark.parametrize(
    ("table", "name", "dataset", "values"),
    [
        ("table1", "stml-g64", "cub", (55.0, 67.5, 78.6)),
        ("table1", "stml-g128", "sop", (65.8, 80.1, 89.9)),
        ("table1", "stml-bn512", "cars", (66.2, 74.5, 81.9)),
        ("table1", "mom-g128", "sop", (43.3, 57.2, 73.2)),
        ("table1", "pa-bn512", "cub", (69.1, 78.9, 86.1)),
        ("scratch", "stml", "sop", (60.7, 74.8, 85.2)),
        ("ablation", "without-relaxed", "cars", (38.7,)),
        ("ssl", "msf-g512", "sop", (47.8,)),
        ("ssl", "byol-g128", "cars", (31.5,)),
        ("semi", "stml-imagenet", "cub", (37.8, 47.9, 75.5)),
        ("semi", "slade-swav", "cars", (38.0, 46.9, 91.5)),
        ("sensitivity", "default", "cars", (50.5,)),
    ],
)
def test_the_numbers_are_the_papers(table: str, name: str, dataset: str, values: tuple[float, ...]) -> None:
    rows = {row.name: row for row in find_table(table).rows}
    assert rows[name].paper[dataset] == values


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_row_has_a_name_of_its_own_and_as_many_numbers_as_there_are_columns(table: Table) -> None:
    names = [row.name for row in table.rows]
    assert len(set(names)) == len(names)
    for row in table.rows:
        assert re.fullmatch(r"[a-z0-9.-]+", row.name), "it is also a folder"
        assert row.settings is not None or row.paper
        for dataset, values in row.paper.items():
            assert len(values) == len(table.columns[dataset])


@pytest.mark.parametrize(("table", "name"), CASES)
def test_every_row_has_settings_that_training_takes(table: str, name: str) -> None:
    row, request = row_of(table, name), request_for(find_table(table))
    for dataset in find_table(table).datasets(row):
        chosen = recipes.settings(**request.settings(row, dataset))
        assert row.settings is not None
        assert chosen.method == row.settings["method"]
        other = recipes.settings(**replace(request, epochs=7, backbone="small").settings(row, dataset))
        assert (other.epochs, other.backbone) == (0 if name == "start" else 7, "small")
    quick = recipes.settings(**replace(request, quick=Quick()).settings(row, EMBEDDED))
    assert quick.backbone == "small"
    assert quick.epochs in (0, Quick().epochs)
    assert quick.method == chosen.method


def test_products_have_their_recipe_and_momentum_encoders_keep_their_momentum() -> None:
    request = request_for(find_table("ssl"))
    stml = recipes.settings(**request.settings(row_of("ssl", "stml-g512"), "sop"))
    assert (stml.recipe, stml.neighbors, stml.delta, stml.momentum, stml.head_lr) == ("sop", 2, 0.9, 0.9, 1e-2)
    moco = recipes.settings(**request.settings(row_of("ssl", "moco-g512"), "sop"))
    assert (moco.recipe, moco.momentum, moco.head_lr) == ("sop", 0.999, 1e-2)
    assert recipes.settings(**request.settings(row_of("ssl", "stml-g512"), "cub")).recipe == "official"


def test_networks_are_the_papers() -> None:
    request = request_for(find_table("table1"))
    g64 = recipes.settings(**request.settings(row_of("table1", "stml-g64"), "cub"))
    assert (g64.backbone, g64.dim, g64.epochs) == ("googlenet", 64, 90)
    bn512 = recipes.settings(**request.settings(row_of("table1", "stml-bn512"), "cub"))
    assert (bn512.backbone, bn512.dim, bn512.freeze_batch_norm) == ("bn_inception", 512, True)
    scratch = recipes.settings(**request.settings(row_of("scratch", "nce"), "sop"))
    assert (scratch.backbone, scratch.weights, scratch.dim, scratch.epochs) == ("resnet18", "none", 128, 180)
    semi = recipes.settings(**request.settings(row_of("semi", "stml-swav"), "cub"))
    assert (semi.sigma, semi.momentum, semi.freeze_batch_norm, semi.dim) == (2.0, 0.9999, True, 512)


def test_k_counts_two_views_of_every_neighbor() -> None:
    request = request_for(find_table("sensitivity"))
    for k in (4, 14, 20):
        chosen = recipes.settings(**request.settings(row_of("sensitivity", f"k-{k}"), "cub"))
        assert (2 * chosen.neighbors, chosen.sigma, chosen.batch_size) == (k, 3.0, None)
    assert recipes.settings(**request.settings(row_of("sensitivity", "sigma-0.5"), "cub")).sigma == 0.5


def test_our_own_table_has_every_method() -> None:
    used = {row.settings["method"] for row in METHODS.rows if row.settings}
    assert used == set(get_args(recipes.Method))
    assert not METHODS.compared


def test_names_that_do_not_exist_are_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'ablation'"):
        find_table("ablations")
    with pytest.raises(UsageError, match="did you mean 'stml-g512'"):
        find_rows(find_table("table1"), ("stml-g521",))
    with pytest.raises(UsageError, match="only the paper's numbers"):
        find_rows(find_table("table1"), ("roul-g64",))


def test_a_quick_table_runs_each_row_once_without_the_papers_numbers() -> None:
    quick = quick_table(find_table("table1"))
    assert list(quick.columns) == [EMBEDDED]
    assert quick.columns[EMBEDDED][:2] == ("recall@1", "recall@2")
    names = [row.name for row in quick.rows]
    assert "stml-g512" in names
    assert "stml-bn512" not in names, "the same as stml-g512 where the network is another"
    assert "mom-g64" not in names
    assert not quick.compared
    assert "cannot be compared" in quick.note


def test_a_quick_removal_stays_a_removal() -> None:
    request = replace(request_for(quick_table(find_table("ablation"))), quick=Quick())
    for name, setting, value in [
        ("without-momentum", "momentum", 0.0),
        ("without-relaxed", "relaxed", False),
        ("without-neighbors", "batches", "random"),
    ]:
        chosen = recipes.settings(**request.settings(row_of("ablation", name), EMBEDDED))
        assert getattr(chosen, setting) == value
