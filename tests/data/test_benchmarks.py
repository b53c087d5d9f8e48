import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trees import make_cars, make_compcars, make_cub, make_nabirds, make_parts, make_sop, touch

from selftaught.data.benchmarks import BENCHMARKS, check_benchmark, find_benchmark, first_classes, read_benchmark
from selftaught.errors import SelftaughtError, UsageError

MAKERS: dict[str, Callable[[Path], Path]] = {
    "cub": make_cub,
    "cars": make_cars,
    "sop": make_sop,
    "nabirds": make_nabirds,
    "compcars": make_compcars,
    "folder": make_parts,
}


def test_cub_trains_on_the_classes_up_to_100_and_tests_on_the_others(tmp_path: Path) -> None:
    make_cub(tmp_path)
    train = read_benchmark("cub", tmp_path, "train")
    assert train.files[0] == "images/001.Bird_1/Bird_1_0000.jpg"
    assert sorted(set(train.labels())) == ["001.Bird_1", "002.Bird_2", "009.Bird_9", "100.Bird_100"]
    assert train.classes() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert set(read_benchmark("cub", tmp_path, "test").labels()) == {"101.Bird_101", "200.Bird_200"}
    assert len(read_benchmark("cub", tmp_path, "all")) == 12


def test_cars_are_read_from_the_annotations_with_their_names(tmp_path: Path) -> None:
    make_cars(tmp_path)
    train, test = (read_benchmark("cars", tmp_path, split) for split in ("train", "test"))
    assert train.files == ("car_ims/000001.jpg", "car_ims/000002.jpg")
    assert train.labels() == ("001.Make Model 1", "098.Make Model 98")
    assert test.labels() == ("099.Make Model 99", "196.Make Model 196")


def test_a_single_car_is_read_too(tmp_path: Path) -> None:
    assert read_benchmark("cars", make_cars(tmp_path, [5]), "all").labels() == ("005.Make Model 5",)


def test_products_are_numbered_in_order_and_named_for_their_kind(tmp_path: Path) -> None:
    make_sop(tmp_path)
    train = read_benchmark("sop", tmp_path, "train")
    assert train.files[:2] == ("sofa_final/1_0.JPG", "sofa_final/1_1.JPG")
    assert sorted(set(train.labels())) == ["00001.sofa", "00002.bicycle", "00010.bicycle"]
    assert set(read_benchmark("sop", tmp_path, "test").labels()) == {"11319.sofa", "11320.bicycle"}


def test_nabirds_is_used_as_a_whole_unless_a_split_is_named(tmp_path: Path) -> None:
    make_nabirds(tmp_path)
    assert len(read_benchmark("nabirds", tmp_path)) == 6
    train, test = (read_benchmark("nabirds", tmp_path, split) for split in ("train", "test"))
    assert len(train) == len(test) == 3
    assert not set(train.files) & set(test.files)
    assert train.labels() == ("0295.Bird, Kind 295", "0817.Bird, Kind 817", "1010.Bird, Kind 1010")


def test_nabirds_without_its_split_file_has_only_all(tmp_path: Path) -> None:
    make_nabirds(tmp_path, split=False)
    assert len(read_benchmark("nabirds", tmp_path)) == 6
    with pytest.raises(UsageError, match=r"has no images in split 'train': choose from all$"):
        read_benchmark("nabirds", tmp_path, "train")


def test_compcars_are_labeled_by_make_and_model(tmp_path: Path) -> None:
    make_compcars(tmp_path)
    images = read_benchmark("compcars", tmp_path)
    assert sorted(set(images.labels())) == ["009/1950", "078/0001", "078/0003"]
    assert "image/78/1/unknown/a1.jpg" in images.files
    assert len(images) == 6
    touch(tmp_path, "image/stray.jpg")
    with pytest.raises(SelftaughtError, match=r"stray\.jpg .* lies outside the numbered folders"):
        read_benchmark("compcars", tmp_path)


def test_a_folder_in_two_parts_has_its_class_folders_as_labels(tmp_path: Path) -> None:
    make_parts(tmp_path)
    assert read_benchmark("folder", tmp_path, "train").labels() == ("cat", "dog", "owl")
    assert read_benchmark("folder", tmp_path, "test").files == ("test/wren/4.jpg", "test/wren/old/5.jpg")
    assert read_benchmark("folder", tmp_path, "all").labels() == ("cat", "dog", "owl", "wren", "wren")


@pytest.mark.parametrize("name", ["cub", "cars", "sop", "nabirds", "folder"])
def test_the_halves_share_no_class_and_make_up_the_training_classes(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path)
    train, first, second = (read_benchmark(name, tmp_path, split) for split in ("train", "train-a", "train-b"))
    assert max(first.labels()) < min(second.labels())
    assert set(first.labels()) | set(second.labels()) == set(train.labels())
    assert len(set(first.labels())) == len(set(train.labels())) // 2
    assert sorted(first.files + second.files) == sorted(train.files)


@pytest.mark.parametrize(
    ("classes", "percent", "first"), [(100, 10, 10), (98, 25, 24), (98, 50, 49), (8, 10, 2), (3, 50, 1)]
)
def test_a_share_of_the_classes_is_rounded_down_to_two_at_least(classes: int, percent: int, first: int) -> None:
    assert first_classes(classes, percent) == first


def test_a_tenth_and_the_rest_make_up_the_training_classes(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{part}/{label:02d}/a.jpg" for part in ("train", "test") for label in range(30)))
    tenth, rest, quarter = (read_benchmark("folder", tmp_path, f"train-{part}") for part in ("a10", "b10", "a25"))
    assert tenth.labels() == ("00", "01", "02")
    assert rest.labels() == tuple(f"{label:02d}" for label in range(3, 30))
    assert quarter.labels() == tuple(f"{label:02d}" for label in range(7))


@pytest.mark.parametrize("name", MAKERS)
def test_every_image_read_is_on_the_disk(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path)
    images = read_benchmark(name, tmp_path, "all")
    assert len(images) > 0
    assert all(Path(images.path(i)).is_file() for i in range(len(images)))


@pytest.mark.parametrize("name", MAKERS)
def test_the_folder_around_the_archives_folder_will_do(name: str, tmp_path: Path) -> None:
    place = MAKERS[name](tmp_path / (BENCHMARKS[name].inner or "unpacked"))
    assert read_benchmark(name, tmp_path, "all").root == place
    assert read_benchmark(name, place, "all").root == place


@pytest.mark.parametrize("name", MAKERS)
def test_no_data_set_is_taken_for_another(name: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path)
    assert [other for other in BENCHMARKS if BENCHMARKS[other].holds(tmp_path)] == [name]
    for other in BENCHMARKS.keys() - {name}:
        with pytest.raises(SelftaughtError) as error:
            read_benchmark(other, tmp_path, "all")
        expected = f"{tmp_path} holds {BENCHMARKS[name].title} ({name}), not {BENCHMARKS[other].title}: "
        assert str(error.value).startswith(expected)


@pytest.mark.parametrize("name", MAKERS)
def test_a_folder_without_the_data_set_is_told_what_was_looked_for_and_what_to_get(name: str, tmp_path: Path) -> None:
    touch(tmp_path, "some/photo.jpg", ".hidden/photo.jpg")
    benchmark = BENCHMARKS[name]
    with pytest.raises(SelftaughtError) as error:
        read_benchmark(name, tmp_path)
    assert all(part in str(error.value) for part in (str(tmp_path), benchmark.signature, benchmark.origin))


def test_a_missing_folder_an_archive_and_wrong_names_are_told_apart(tmp_path: Path) -> None:
    touch(tmp_path, "CUB_200_2011.tgz")
    with pytest.raises(UsageError, match="there is no folder"):
        read_benchmark("cub", tmp_path / "gone")
    with pytest.raises(UsageError, match=r"is a file; give the folder of CUB-200-2011, unpacked"):
        read_benchmark("cub", tmp_path / "CUB_200_2011.tgz")
    with pytest.raises(UsageError, match="unknown data set 'cup': did you mean 'cub'"):
        read_benchmark("cup", tmp_path)
    with pytest.raises(UsageError, match="unknown split 'trian': did you mean 'train'"):
        read_benchmark("cub", make_cub(tmp_path / "cub"), "trian")


def test_files_that_are_listed_but_missing_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    make_cub(tmp_path)
    for photo in ("009.Bird_9/Bird_9_0001.jpg", "100.Bird_100/Bird_100_0000.jpg"):
        (tmp_path / "images" / photo).unlink()
    with pytest.raises(SelftaughtError, match=r"2 of 8 images .* the first is images/009\.Bird_9/Bird_9_0001\.jpg"):
        read_benchmark("cub", tmp_path, "train")
    assert len(read_benchmark("cub", tmp_path, "test")) == 4


def test_each_folder_is_listed_once_and_no_image_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cub(tmp_path, photos=20)
    listed: list[str] = []
    looked_at: list[str] = []

    def noted(work: Callable[..., Any], places: list[str]) -> Callable[..., Any]:
        def note(place: object, **more: Any) -> Any:
            places.append(str(place))
            return work(place, **more)

        return note

    monkeypatch.setattr(os, "listdir", noted(os.listdir, listed))
    monkeypatch.setattr(os, "stat", noted(os.stat, looked_at))
    read_benchmark("cub", tmp_path, "all")
    folders = [place for place in listed if "Bird_" in place]
    assert len(folders) == len(set(folders)) == 6
    assert not [path for path in looked_at if path.endswith(".jpg")]


@pytest.mark.parametrize(
    ("name", "index", "bad"),
    [
        ("cub", "images.txt", "3"),
        ("cub", "image_class_labels.txt", "3 albatross"),
        ("sop", "Ebay_train.txt", "1 2 bicycle_final/x.JPG"),
        ("nabirds", "images.txt", "3 0817/x.jpg"),
        ("nabirds", "train_test_split.txt", "00000000-0000-0000-0000-000000001eef 2"),
    ],
)
def test_a_malformed_line_is_named_by_its_number(name: str, index: str, bad: str, tmp_path: Path) -> None:
    MAKERS[name](tmp_path)
    lines = (tmp_path / index).read_text().splitlines()
    (tmp_path / index).write_text("\n".join([*lines[:2], bad, *lines[3:]]))
    with pytest.raises(SelftaughtError, match=rf"line 3 of .*{index} is '{bad}', but should be like '"):
        read_benchmark(name, tmp_path, "all")


def test_an_index_without_its_header_is_malformed_in_line_1(tmp_path: Path) -> None:
    make_sop(tmp_path)
    lines = (tmp_path / "Ebay_test.txt").read_text().splitlines()
    (tmp_path / "Ebay_test.txt").write_text("\n".join(lines[1:]))
    with pytest.raises(SelftaughtError, match=r"line 1 of .*Ebay_test.txt is .* should be like 'image_id"):
        read_benchmark("sop", tmp_path)


def test_windows_line_ends_and_blank_lines_are_fine(tmp_path: Path) -> None:
    make_cub(tmp_path)
    text = (tmp_path / "images.txt").read_text()
    (tmp_path / "images.txt").write_bytes(text.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    assert len(read_benchmark("cub", tmp_path, "all")) == 12


def test_an_image_without_a_class_without_a_part_or_listed_twice_is_named(tmp_path: Path) -> None:
    cub, nabirds, twice = (tmp_path / name for name in ("cub", "nabirds", "twice"))
    make_cub(cub)
    make_nabirds(nabirds)
    make_cub(twice)
    for index in (cub / "image_class_labels.txt", nabirds / "train_test_split.txt"):
        index.write_text("\n".join(index.read_text().splitlines()[:-1]))
    first = (twice / "images.txt").read_text().splitlines()[0].split()[1]
    with (twice / "images.txt").open("a") as file:
        file.write(f"1 {first}\n")
    with pytest.raises(SelftaughtError, match="has no class for image 12"):
        read_benchmark("cub", cub)
    with pytest.raises(SelftaughtError, match="has no line for image 00000000-"):
        read_benchmark("nabirds", nabirds)
    with pytest.raises(SelftaughtError, match=f"has images/{first} twice"):
        read_benchmark("cub", twice)


def test_damaged_annotations_of_cars_are_one_sentence(tmp_path: Path) -> None:
    touch(tmp_path, "empty/cars_annos.mat")
    make_cars(tmp_path / "whole", [0])
    with pytest.raises(SelftaughtError, match=r"cars_annos\.mat cannot be read"):
        read_benchmark("cars", tmp_path / "empty")
    with pytest.raises(SelftaughtError, match="a class is not within 1 to 196"):
        read_benchmark("cars", tmp_path / "whole")


def test_a_check_counts_what_is_there_beside_the_official_counts(tmp_path: Path) -> None:
    make_sop(tmp_path)
    (tmp_path / "sofa_final" / "1_0.JPG").unlink()
    place, (train, test, whole) = check_benchmark("sop", tmp_path)
    assert place == tmp_path
    assert (train.found.images, train.found.classes) == (5, 3)
    assert train.missing == whole.missing == ("sofa_final/1_0.JPG",)
    assert test.missing == ()
    assert train.expected is not None
    assert (train.expected.images, train.expected.classes) == (59551, 11318)
    assert train.differs
    assert not any(check.differs for check in check_benchmark("folder", make_parts(tmp_path / "own"))[1])


def test_a_benchmark_is_found_in_a_common_data_folder(tmp_path: Path) -> None:
    places = {
        "cub": make_cub(tmp_path / "CUB_200_2011"),
        "cars": make_cars(tmp_path / "my cars"),
        "nabirds": make_nabirds(tmp_path / "birds"),
        "compcars": make_compcars(tmp_path / "CompCars" / "data"),
    }
    for name, place in places.items():
        assert find_benchmark(name, tmp_path) == place
        assert find_benchmark(name, place) == place
    assert find_benchmark("sop", tmp_path) is None
    assert find_benchmark("sop", tmp_path / "gone") is None
