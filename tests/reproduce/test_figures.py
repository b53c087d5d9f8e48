import itertools
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from conftest import TINY, draw_photos, read_csv
from selftaught import Embedder, contextualized_similarity, train
from selftaught.cli.commands import figures
from selftaught.data import Views, find_images, open_image, view_seed
from selftaught.errors import SelftaughtError, UsageError
from selftaught.learners import STMLSettings, make_settings
from selftaught.method.batches import neighbor_batches
from selftaught.report import draw_lines
from selftaught.reproduce.figures import draw, observe
from selftaught.reproduce.figures.cases import HIGH, LOW, draw_cases, find_cases
from selftaught.reproduce.figures.draw import FIGURES, draw_figures
from selftaught.reproduce.figures.drawing import Drawing, check_files
from selftaught.reproduce.figures.labeled_images import LabeledImages, pick_middles
from selftaught.reproduce.figures.observe import BATCHES, BatchSimilarities, EpochResult, fitting_batch
from selftaught.reproduce.figures.relations import Relations, auroc, aurocs, between_images, pairs, relate
from selftaught.reproduce.figures.tsne import tsne
from selftaught.training.snapshots import Snapshot, load_snapshot

CPU = torch.device("cpu")
SIMILARITIES = ("pairwise", "contextual", "contextualized")


@pytest.fixture(scope="module")
def kept_run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs, with the networks of each."""
    folder = tmp_path_factory.mktemp("runs") / "kept"
    train(photos, out=folder, epochs=2, snapshots=1, quiet=True, **TINY)
    return folder


@pytest.fixture(scope="module")
def drawn(kept_run: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("figures")
    written, left_out = draw_figures(kept_run, find_images(photos), out, CPU)
    assert left_out == []
    assert sorted(written) == sorted(out.iterdir())
    return out


def random_relations(images: int = 9, seed: int = 0) -> Relations:
    generator = torch.Generator().manual_seed(seed)
    return relate(
        torch.randn(2 * images, 5, generator=generator), torch.arange(images).repeat(2), make_settings(neighbors=2)
    )


# The numbers


def test_auroc_is_the_share_of_right_comparisons_with_ties_as_half() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(10):
        scores = torch.randint(0, 6, (40,), generator=generator) / 7
        positive = torch.rand(40, generator=generator) < 0.3
        wins = [
            1.0 if p > n else 0.5 if p == n else 0.0
            for p, n in itertools.product(scores[positive].tolist(), scores[~positive].tolist())
        ]
        assert auroc(scores, positive) == pytest.approx(sum(wins) / len(wins), abs=1e-12)


def test_auroc_of_one_kind_only_is_no_number() -> None:
    assert math.isnan(auroc(torch.rand(4), torch.ones(4, dtype=torch.bool)))
    assert math.isnan(auroc(torch.rand(4), torch.zeros(4, dtype=torch.bool)))


@pytest.mark.parametrize("group_views", [True, False])
def test_similarities_are_those_of_training(group_views: bool) -> None:
    ids = torch.arange(8).repeat_interleave(2)
    g = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    relations = relate(g, ids, make_settings(neighbors=3, sigma=2.0, group_views=group_views))
    expected = contextualized_similarity(g, 6, 2.0, ids if group_views else None)
    torch.testing.assert_close(relations.w[2], expected)


def test_pairs_are_those_of_different_images_each_once() -> None:
    relations = Relations(torch.tensor([0, 1, 0, 2]), torch.zeros(3, 4, 4))
    first, second = pairs(relations)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 1), (0, 3), (1, 2), (1, 3), (2, 3)]


def test_similarity_of_two_images_is_the_mean_over_their_views() -> None:
    ids = torch.tensor([3, 1, 3, 1, 1, 7])
    w = torch.rand(3, 6, 6, generator=torch.Generator().manual_seed(0))
    whole = between_images(Relations(ids, w))
    assert whole.ids.tolist() == [1, 3, 7]
    for layer, means in zip(w, whole.w, strict=True):
        for i, j in itertools.product(range(3), repeat=2):
            rows = [layer[a, b] for a in range(6) for b in range(6) if (ids[a], ids[b]) == (whole.ids[i], whole.ids[j])]
            assert float(means[i, j]) == pytest.approx(float(torch.stack(rows).mean()), abs=1e-6)


def test_a_teacher_that_knows_the_classes_has_an_auroc_of_one() -> None:
    ids = torch.arange(8).repeat_interleave(2)
    classes = torch.arange(8) // 2
    relations = relate(torch.eye(4)[classes[ids]], ids, make_settings(neighbors=2))
    assert aurocs(relations, classes) == {"pairwise": 1.0, "contextual": 1.0, "contextualized": 1.0}


def test_cases_hold_the_pairs_that_are_high_and_low_as_they_say() -> None:
    relations = between_images(random_relations(40))
    first, second = pairs(relations)
    p, c, w = relations.w[:, first, second].double()
    high = {"p": p >= p.quantile(HIGH), "c": (c >= c.quantile(HIGH)) & (c > c.quantile(LOW))}
    low = {"p": p <= p.quantile(LOW), "c": c <= c.quantile(LOW)}
    expected = {
        "a": high["p"] & low["c"],
        "b": high["p"] & high["c"],
        "c": low["p"] & low["c"],
        "d": low["p"] & high["c"],
    }
    found = find_cases(relations)
    for case, members in found.items():
        assert set(members.tolist()) == set(expected[case].nonzero()[:, 0].tolist())
        assert w[members].tolist() == sorted(w[members].tolist())
    assert len(found["c"]) > len(found["b"]) > 0


def test_nothing_is_high_where_all_pairs_are_equal(photos: Path, tmp_path: Path) -> None:
    relations = Relations(torch.arange(5), torch.full((3, 5, 5), 0.5))
    assert {case: len(members) for case, members in find_cases(relations).items()} == {"a": 0, "b": 0, "c": 10, "d": 0}
    seen = [EpochResult(1, None, BatchSimilarities({}, [0], relations))]
    draw_cases(LabeledImages(find_images(photos)), seen).write(tmp_path, "cases")
    rows = read_csv(tmp_path / "cases.csv")
    assert {row["case"] for row in rows} == {"c"}
    assert [row["same_class"] for row in rows] == ["1", "1", "1", "0", "0", "0"]  # of 4 and 6 such pairs
    with Image.open(tmp_path / "cases.png") as picture:
        assert picture.height < 700  # the empty cases take a line, not rows of tiles


def test_older_files_of_a_figure_are_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"old")
    picture = draw_lines([{"epoch": 0, "a": 1.0}], {"a": "first"}, "Scores")
    Drawing(picture, ["epoch", "a"], [[0, 1 / 3]]).write(tmp_path, "x")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.csv", "x.png"]
    assert (tmp_path / "x.csv").read_text() == "epoch,a\n0,0.333333\n"
    with Image.open(tmp_path / "x.png") as opened:
        assert opened.format == "PNG"
        opened.verify()


@pytest.mark.parametrize("name", ["auroc.csv", "auroc.png"])
def test_a_file_of_the_user_in_the_folder_of_figures_is_kept(
    kept_run: Path, photos: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("path,label\n0.jpg,bird\n")
    with pytest.raises(UsageError, match=f"{name} would be replaced, .* give another --out"):
        draw_figures(kept_run, find_images(photos), tmp_path, CPU)
    assert (tmp_path / name).read_text() == "path,label\n0.jpg,bird\n"


def test_figures_are_replaced_by_those_of_the_same_command(drawn: Path) -> None:
    for file in drawn.glob("*.png"):
        check_files(drawn, file.stem)


# What is shown


def test_what_is_shown_is_evenly_spaced_and_never_more_than_there_is() -> None:
    assert pick_middles(3, 12) == [2, 6, 10]
    assert pick_middles(5, 3) == [0, 1, 2]
    assert pick_middles(5, 0) == []


def test_queries_have_another_image_of_their_class_to_find(tmp_path: Path) -> None:
    draw_photos(tmp_path, classes=3, photos=2)
    (tmp_path / "class 1" / "0.jpg").unlink()
    labeled = LabeledImages(find_images(tmp_path))
    assert [labeled.labels[i] for i in labeled.queries(10)] == ["class 0", "class 0", "class 2", "class 2"]


def test_a_sample_has_whole_classes_or_enough_of_them(photos: Path) -> None:
    labeled = LabeledImages(find_images(photos))
    assert labeled.sample(100, 12) == list(range(24))
    whole = labeled.sample(12, 1)
    assert [labeled.labels[i] for i in whole] == [f"class {c}" for c in (1, 3, 5) for _ in range(4)]
    assert len({labeled.labels[i] for i in labeled.sample(12, 6)}) == 6
    assert len(labeled.sample(12, 6)) == 12


def test_a_batch_is_no_larger_than_the_images_allow() -> None:
    assert fitting_batch(1000, make_settings(batch_size=120)) == 120
    assert fitting_batch(23, make_settings(batch_size=120)) == 20
    with pytest.raises(SelftaughtError, match=r"9 images are too few .* at least 10"):
        fitting_batch(9, make_settings())


# The figures


def test_every_figure_is_a_picture_with_a_table(drawn: Path) -> None:
    assert len(FIGURES) == 6
    for figure in FIGURES:
        assert len(read_csv(drawn / f"{figure.name}.csv")) > 0
        with Image.open(drawn / f"{figure.name}.png") as picture:
            picture.verify()
            assert picture.width > 400


def test_auroc_of_the_last_epoch_is_right(drawn: Path, kept_run: Path, photos: Path) -> None:
    """Recomputed image by image."""
    images = find_images(photos)
    snapshot = load_snapshot(kept_run, 2, CPU)
    p = snapshot.preprocessing
    views = Views(p.size, p.resize, p.squash, snapshot.settings.crop_scale)
    pictures = [open_image(images.path(i)) for i in range(len(images))]
    classes = torch.tensor(images.classes())
    assert snapshot.teacher is not None
    assert isinstance(snapshot.settings, STMLSettings)
    with torch.no_grad():
        g = torch.cat([snapshot.student(views(picture, "squash"))["g"] for picture in pictures])
        generator = torch.Generator().manual_seed(0)
        batches = torch.cat([neighbor_batches(g, 8, 2, generator) for _ in range(4)])[:BATCHES]
        values = []
        for step, batch in enumerate(batches.tolist()):
            seen = [views(pictures[i], "random", view_seed(0, step, n)) for n, i in enumerate(batch)]
            ids = torch.tensor(batch).repeat_interleave(2)
            w = contextualized_similarity(snapshot.teacher(torch.cat(seen))["g"], 4, snapshot.settings.sigma, ids)
            different = ids[:, None] != ids
            values.append(auroc(w[different], (classes[ids][:, None] == classes[ids])[different]))
    rows = read_csv(drawn / "auroc.csv")
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert list(rows[0]) == ["epoch", *SIMILARITIES]
    mean = float(torch.tensor(values).nanmean())
    assert float(rows[-1]["contextualized"]) == pytest.approx(mean, abs=1e-4)


def test_retrievals_of_the_last_epoch_are_those_of_the_finished_model(
    drawn: Path, kept_run: Path, photos: Path
) -> None:
    images = find_images(photos)
    z = Embedder.load(kept_run, "cpu").encode([images.path(i) for i in range(len(images))])
    rows = read_csv(drawn / "retrievals.csv")
    assert {row["epoch"] for row in rows} == {"0", "1", "2"}
    last = [row for row in rows if row["epoch"] == "2"]
    assert len(last) == 8 * 3
    for query, group in itertools.groupby(last, key=lambda row: row["query"]):
        index = images.files.index(query)
        distances = (z - z[index]).norm(dim=1)
        distances[index] = math.inf
        expected = distances.sort().values[:3].tolist()
        found = list(group)
        assert [float(row["distance"]) for row in found] == pytest.approx(expected, rel=1e-3)
        for row in found:
            assert row["path"] != query
            assert float(row["distance"]) == pytest.approx(float(distances[images.files.index(row["path"])]), rel=1e-3)
            assert int(row["same_class"]) == (row["path"].split("/")[0] == query.split("/")[0])


def test_most_similar_images_come_in_order_and_never_the_query_itself(drawn: Path) -> None:
    rows = read_csv(drawn / "most-similar.csv")
    assert {row["epoch"] for row in rows} == {"0", "2"}
    for (_, query), group in itertools.groupby(rows, key=lambda row: (row["epoch"], row["query"])):
        found = list(group)
        w = [float(row["contextualized"]) for row in found]
        assert w == sorted(w, reverse=True)
        assert [row["rank"] for row in found] == [str(i + 1) for i in range(len(found))]
        assert query not in {row["path"] for row in found}
        assert all(int(row["same_class"]) == (row["path"].split("/")[0] == query.split("/")[0]) for row in found)


@pytest.mark.parametrize("name", ["cases", "similarities"])
def test_tables_of_pairs_have_the_mean_of_both_similarities(drawn: Path, name: str) -> None:
    rows = read_csv(drawn / f"{name}.csv")
    assert len({(row["path"], row["other_path"]) for row in rows}) == len(rows)
    for row in rows:
        mean = (float(row["pairwise"]) + float(row["contextual"])) / 2
        assert float(row["contextualized"]) == pytest.approx(mean, abs=1e-5)
        assert int(row["same_class"]) == (row["path"].split("/")[0] == row["other_path"].split("/")[0])
        assert row["path"] != row["other_path"]


def test_the_map_has_every_image_before_and_after(drawn: Path, photos: Path) -> None:
    rows = read_csv(drawn / "tsne.csv")
    images = find_images(photos)
    assert [row["path"] for row in rows] == list(images.files)
    assert [row["label"] for row in rows] == list(images.labels())
    for row in rows:
        assert all(math.isfinite(float(row[name])) for name in ("x_before", "y_before", "x_after", "y_after"))


def test_equal_vectors_give_equal_maps_and_near_ones_lie_together() -> None:
    z = torch.randn(24, 5, generator=torch.Generator().manual_seed(0)) * 0.1 + (torch.arange(24) % 2)[:, None]
    points = tsne(z)
    assert torch.equal(points, tsne(z))
    distances = torch.cdist(points, points).fill_diagonal_(math.inf)
    assert (distances.argmin(1) % 2 == torch.arange(24) % 2).all()
    assert tsne(z[:4, :1]).shape == (4, 2)


def test_another_seed_draws_other_batches(
    drawn: Path, kept_run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "FIGURES", FIGURES[:1])
    draw_figures(kept_run, find_images(photos), tmp_path, CPU, seed=1)
    assert (tmp_path / "auroc.csv").read_bytes() != (drawn / "auroc.csv").read_bytes()


# What cannot be drawn


def test_a_run_that_kept_nothing_is_one_sentence(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(SelftaughtError, match=r"has kept no networks .* --snapshots 10"):
        draw_figures(tmp_path, find_images(photos), tmp_path / "out", CPU)
    assert not (tmp_path / "out").exists()


def test_figures_of_a_course_are_left_out_where_one_epoch_was_kept(
    kept_run: Path, photos: Path, tmp_path: Path
) -> None:
    (tmp_path / "run" / "snapshots").mkdir(parents=True)
    for name in ("settings.json", "snapshots/epoch-002.safetensors"):
        shutil.copy(kept_run / name, tmp_path / "run" / name)
    written, left_out = draw_figures(tmp_path / "run", find_images(photos), tmp_path / "out", CPU)
    assert {path.stem for path in written} == {"similarities", "cases", "most-similar"}
    assert [line.split()[0] for line in left_out] == ["auroc", "tsne", "retrievals"]
    assert all("only those of epoch 2" in line and "--snapshots 10" in line for line in left_out)


def test_figures_of_the_similarity_are_left_out_where_there_is_no_teacher(
    kept_run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_teacher(run: Path, epoch: int, device: torch.device) -> Snapshot:
        return replace(load_snapshot(run, epoch, device), teacher=None)

    monkeypatch.setattr(draw, "load_snapshot", without_teacher)
    monkeypatch.setattr(draw, "find_spec", lambda _: None)
    written, left_out = draw_figures(kept_run, find_images(photos), tmp_path, CPU)
    assert {path.stem for path in written} == {"retrievals"}
    assert sum("has no teacher" in line and "--method stml" in line for line in left_out) == 4
    assert left_out[-1] == "tsne is left out: it needs scikit-learn: pip install 'selftaught[research]'"


def test_images_that_cannot_be_read_are_left_out_if_they_are_few(
    kept_run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "FIGURES", [figure for figure in FIGURES if figure.name == "tsne"])
    monkeypatch.setattr(observe, "BATCHES", 1)
    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "class 0" / "broken.jpg").write_bytes(b"no image")
    draw_figures(kept_run, find_images(tmp_path / "photos"), tmp_path / "out", CPU)
    assert "broken" not in (tmp_path / "out" / "tsne.csv").read_text()
    (tmp_path / "photos" / "class 1" / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(SelftaughtError, match=r"2 of 26 images .* --allow-skipped"):
        draw_figures(kept_run, find_images(tmp_path / "photos"), tmp_path / "out", CPU)


@pytest.mark.parametrize(("classes", "each"), [(1, 6), (6, 1)])
def test_images_of_which_nothing_can_be_told_are_one_sentence(
    kept_run: Path, tmp_path: Path, classes: int, each: int
) -> None:
    draw_photos(tmp_path / "photos", classes=classes, photos=each)
    with pytest.raises(SelftaughtError, match=f"at least two classes.*6 images of {classes} class"):
        draw_figures(kept_run, find_images(tmp_path / "photos"), tmp_path / "out", CPU)


def test_the_command_writes_the_same_into_the_run_and_prints_what(
    drawn: Path, kept_run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(draw, "FIGURES", FIGURES[:1])
    figures(kept_run, str(photos), None, "cpu", seed=0, allow_skipped=False)
    assert (kept_run / "figures" / "auroc.csv").read_bytes() == (drawn / "auroc.csv").read_bytes()
    assert capsys.readouterr().out.split() == [str(kept_run / "figures" / f"auroc.{kind}") for kind in ("png", "csv")]


def test_misuse_is_one_sentence(kept_run: Path, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run"):
        figures(tmp_path / "none", str(photos), None, "cpu", seed=0, allow_skipped=False)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"file cannot be the folder of figures .*give another --out"):
        figures(kept_run, str(photos), tmp_path / "file", "cpu", seed=0, allow_skipped=False)
    flat = tmp_path / "flat"
    flat.mkdir()
    Image.new("RGB", (64, 64)).save(flat / "a.jpg")
    with pytest.raises(SelftaughtError, match="in no class folder"):
        figures(kept_run, str(flat), None, "cpu", seed=0, allow_skipped=False)
