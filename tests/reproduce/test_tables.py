import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from selftaught import learners
from selftaught.errors import UsageError
from selftaught.learners import make_settings, settings_for
from selftaught.reproduce.quick import EMBEDDED, Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.table import FOLDER, Row, Table
from selftaught.reproduce.tables import EVERY_METHOD, TABLES, find_rows, find_table

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
        assert [row.settings is not None, bool(row.why), bool(row.source)].count(True) == 1, "run, or why not"
        assert row.source in ("", *names)
        for dataset, values in row.paper.items():
            assert len(values) == len(table.columns[dataset])


@pytest.mark.parametrize(("table", "name"), CASES)
def test_every_row_has_settings_that_training_takes(table: str, name: str) -> None:
    row, request = row_of(table, name), request_for(find_table(table))
    for dataset in find_table(table).datasets(row):
        chosen = make_settings(**request.settings(row, dataset))
        assert row.settings is not None
        assert chosen.method == row.settings["method"]
        other = make_settings(**replace(request, epochs=7, backbone="small").settings(row, dataset))
        backbone = "googlenet_abe" if chosen.method == "abe" else "small"
        assert (other.epochs, other.backbone) == (0 if name == "start" else 7, backbone)
    quick = make_settings(**replace(request, quick=Quick()).settings(row, EMBEDDED))
    assert quick.backbone == ("small_abe" if quick.method == "abe" else "small")
    assert quick.epochs in (0, Quick().epochs, quick.supervised_epochs if getattr(quick, "both_heads", False) else 0)
    assert getattr(quick, "clusters", None) is None
    assert quick.method == chosen.method


def test_on_products_only_stml_has_the_recipes_momentum_and_rate_of_the_heads() -> None:
    found = set()
    for table, name in CASES:
        row, request = row_of(table, name), request_for(find_table(table))
        if "sop" in request.table.datasets(row) and table != "scratch":
            chosen = make_settings(**request.settings(row, "sop"))
            assert (chosen.recipe, chosen.neighbors, chosen.lr) == ("sop", 2, 1e-4)
            stml = chosen.method == "stml"
            assert chosen.head_lr == (1e-2 if stml else 1e-4)
            assert getattr(chosen, "momentum", 0.999) == (0.9 if stml else 0.999)
            assert getattr(chosen, "delta", 0.9) == 0.9
            found.add(chosen.method)
    assert {"stml", "moco", "byol", "msf", "nce", "isif", "deepcluster", "udml-ss", "proxy-anchor"} <= found
    for row in find_rows(find_table("scratch"), ()):
        chosen = make_settings(**request_for(find_table("scratch")).settings(row, "sop"))
        assert (chosen.recipe, chosen.lr, chosen.head_lr) == ("scratch", 5e-4, 1e-4)
    on_birds = request_for(find_table("ssl")).settings(row_of("ssl", "stml-g512"), "cub")
    assert make_settings(**on_birds).recipe == "official"


def test_clusters_are_as_many_as_the_note_says_and_automatic_where_nothing_is_known() -> None:
    def clusters(table: str, name: str, dataset: str) -> Any:
        settings = request_for(find_table(table)).settings(row_of(table, name), dataset)
        return make_settings(**settings).clusters

    for name in ("deepcluster-g128", "udml-ss-g512"):
        assert [clusters("table1", name, data) for data in ("cub", "cars", "sop")] == [100, 100, 10_000]
    assert [clusters("semi", "slade-swav", data) for data in ("cub", "cars")] == [500, 1000]
    assert {clusters("methods", name, FOLDER) for name in ("deepcluster", "udml-ss", "semi-slade")} == {None}
    assert "100 on CUB and Cars, 10,000 on SOP" in find_table("table1").note
    assert "500 of NABirds, 1,000 of CompCars" in find_table("semi").note


@pytest.mark.parametrize("options", [{}, {"quick": Quick()}, {"epochs": 4}, {"epochs": 4, "quick": Quick()}])
def test_the_supervised_half_is_the_first_stage_of_the_semi_supervised_rows(options: dict[str, Any]) -> None:
    request = replace(request_for(EVERY_METHOD), **options)
    dataset = EMBEDDED if request.quick else FOLDER
    half, stml, *slade = (
        make_settings(**request.settings(row_of("methods", name), dataset))
        for name in ("ms-half", "semi-stml", "semi-slade", "semi-slade-clusters")
    )
    assert {half.epochs} == {stml.supervised_epochs} | {row.supervised_epochs for row in slade}
    stage = asdict(settings_for(stml, "multi-similarity", both_heads=True, epochs=stml.supervised_epochs))
    of_no_account = {"recipe", "supervised_epochs"}
    different = {name for name, value in asdict(half).items() if value != stage[name]} - of_no_account
    assert different <= {"freeze_batch_norm"}, "automatic, which is frozen where the weights are pretrained"


def test_networks_are_the_papers() -> None:
    request = request_for(find_table("table1"))
    g64 = make_settings(**request.settings(row_of("table1", "stml-g64"), "cub"))
    assert (g64.backbone, g64.dim, g64.epochs) == ("googlenet", 64, 90)
    bn512 = make_settings(**request.settings(row_of("table1", "stml-bn512"), "cub"))
    assert (bn512.backbone, bn512.dim, bn512.freeze_batch_norm) == ("bn_inception", 512, True)
    scratch = make_settings(**request.settings(row_of("scratch", "nce"), "sop"))
    assert (scratch.backbone, scratch.weights, scratch.dim, scratch.epochs) == ("resnet18", "none", 128, 180)
    semi = make_settings(**request.settings(row_of("semi", "stml-swav"), "cub"))
    assert (semi.sigma, semi.momentum, semi.freeze_batch_norm, semi.dim) == (2.0, 0.9999, True, 512)


def test_k_counts_two_views_of_every_neighbor() -> None:
    request = request_for(find_table("sensitivity"))
    for k in (4, 14, 20):
        chosen = make_settings(**request.settings(row_of("sensitivity", f"k-{k}"), "cub"))
        assert (2 * chosen.neighbors, chosen.sigma, chosen.batch_size) == (k, 3.0, None)
    assert make_settings(**request.settings(row_of("sensitivity", "sigma-0.5"), "cub")).sigma == 0.5


def test_quick_points_of_the_sensitivity_have_the_k_and_sigma_of_their_labels() -> None:
    request = replace(request_for(quick_table(find_table("sensitivity"))), quick=Quick())
    points = {}
    for row in request.table.rows:
        chosen = make_settings(**request.settings(row, EMBEDDED))
        points[row.name] = (2 * chosen.neighbors, chosen.sigma)
    assert (points["default"], points["k-4"], points["sigma-0.5"]) == ((10, 3.0), (4, 3.0), (10, 0.5))
    assert len(set(points.values())) == len(points) == 14


def test_our_own_table_has_every_method() -> None:
    used = {row.settings["method"] for row in EVERY_METHOD.rows if row.settings}
    assert used == set(learners.METHODS)
    assert not EVERY_METHOD.compared


def test_the_page_of_methods_says_which_rows_are_not_run_and_why() -> None:
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text("utf-8")
    for table in TABLES.values():
        assert re.search(rf"(`|reproduce ){table.name}[` ]", page), table.name
        for row in table.rows:
            assert f"- {row.label}: {row.why.partition(';')[0]}" in page or not row.why, row.label


def test_names_that_do_not_exist_are_answered_with_the_nearest_one() -> None:
    with pytest.raises(UsageError, match="did you mean 'ablation'"):
        find_table("ablations")
    with pytest.raises(UsageError, match="did you mean 'stml-g512'"):
        find_rows(find_table("table1"), ("stml-g521",))
    with pytest.raises(UsageError, match="only the paper's numbers"):
        find_rows(find_table("table1"), ("roul-g64",))
    with pytest.raises(UsageError, match="comes with the run of 'start'"):
        find_rows(EVERY_METHOD, ("plain-floor",))


def test_a_quick_table_runs_each_row_once_without_the_papers_numbers() -> None:
    quick = quick_table(find_table("table1"))
    assert list(quick.columns) == [EMBEDDED]
    assert quick.columns[EMBEDDED][:2] == ("recall@1", "recall@2")
    names = [row.name for row in quick.rows]
    assert "stml-g512" in names
    assert "stml-bn512" not in names, "the same as stml-g512 where the network is another"
    assert "roul-g64" not in names
    labels = [row.label for row in quick.rows]
    assert [label for label in labels if "STML" in label] == [f"STML, {dim} dimensions" for dim in (64, 128, 512)]
    assert "UDML-SS" in labels, "alone of its name"
    assert not any(row.arch for row in quick.rows), "the network is another"
    assert not quick.compared
    assert "cannot be compared" in quick.note


def test_a_quick_removal_stays_a_removal() -> None:
    request = replace(request_for(quick_table(find_table("ablation"))), quick=Quick())
    for name, setting, value in [
        ("without-momentum", "momentum", 0.0),
        ("without-relaxed", "relaxed", False),
        ("without-neighbors", "batches", "random"),
    ]:
        chosen = make_settings(**request.settings(row_of("ablation", name), EMBEDDED))
        assert getattr(chosen, setting) == value
