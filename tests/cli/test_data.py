from dataclasses import replace
from pathlib import Path

import pytest
from trees import touch

from conftest import Call
from selftaught.data import BENCHMARKS
from selftaught.data.benchmarks.benchmark import Counts


@pytest.fixture
def products(tmp_path: Path) -> Path:
    """Stanford Online Products with three photos."""
    for part, files in (("train", ["a_final/1_0.JPG", "a_final/1_1.JPG"]), ("test", ["b_final/2_0.JPG"])):
        rows = [f"{i} {file[8]} 1 {file}" for i, file in enumerate(files, 1)]
        touch(tmp_path, *files)
        (tmp_path / f"Ebay_{part}.txt").write_text("\n".join(["image_id class_id super_class_id path", *rows]))
    return tmp_path


def test_all_data_sets_are_listed_with_what_to_get(call: Call) -> None:
    code, text, _ = call("data", "list")
    assert code == 0
    for benchmark in BENCHMARKS.values():
        assert benchmark.name in text
        assert benchmark.origin.split()[0] in text


def test_counts_that_are_not_the_official_ones_are_reported_by_split(call: Call, products: Path) -> None:
    code, text, error = call("data", "check", "sop", products)
    assert code == 1
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line}
    assert rows["train"] == ["2", "59,551", "1", "11,318", "0"]
    assert rows["test"] == ["1", "60,502", "1", "11,316", "0"]
    assert "counts differ from the official ones in train, test, all" in error
    assert "Stanford_Online_Products.zip" in error
    assert len(error.strip().splitlines()) == 1


def test_missing_files_are_counted_and_the_first_is_named(call: Call, products: Path) -> None:
    (products / "b_final" / "2_0.JPG").unlink()
    code, text, error = call("data", "check", "sop", products)
    assert code == 1
    assert text.splitlines()[3].split() == ["test", "0", "60,502", "0", "11,316", "1"]
    assert "1 listed files are missing, the first is b_final/2_0.JPG" in error


def test_a_complete_data_set_ends_with_0(call: Call, products: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": Counts(2, 1), "test": Counts(1, 1), "all": Counts(3, None)}
    monkeypatch.setattr(
        "selftaught.data.benchmarks.registry.BENCHMARKS", {"sop": replace(BENCHMARKS["sop"], expected=counts)}
    )
    code, text, error = call("data", "check", "sop", products)
    assert (code, error) == (0, "")
    assert f"Stanford Online Products in {products}" in text
    assert text.endswith("complete\n")


def test_a_folder_in_two_parts_has_no_official_counts(call: Call, tmp_path: Path) -> None:
    touch(tmp_path, "train/cat/1.jpg", "test/dog/2.jpg")
    code, text, _ = call("data", "check", "folder", tmp_path)
    assert code == 0
    assert "no official counts" in text


def test_images_of_ones_own_are_counted_and_the_level_of_their_classes_is_said(call: Call, tmp_path: Path) -> None:
    touch(tmp_path, "fruit/apple/1.jpg", "fruit/apple/2.jpg", "fruit/pear/3.jpg", "milk/soy/4.jpg")
    code, text, _ = call("data", "check", tmp_path)
    assert code == 0
    assert "4 images in" in text
    assert "3 classes: the folders that hold the images, such as fruit/apple" in text
    assert "(--level top)" in text
    assert "2 classes have one image only, which is left out of scores: fruit/pear" in text
    assert "2 classes: the folders directly in" in call("data", "check", tmp_path, "--level", "top")[1]
    (tmp_path / "milk" / "soy" / "5.jpg").touch()
    assert "1 class has one image only" in call("data", "check", tmp_path)[1]


def test_misuse_and_other_data_sets_end_in_one_line(call: Call, products: Path) -> None:
    for words, code, message in (
        (("sob", products), 2, "did you mean 'sop'"),
        (("sop", products / "gone"), 2, "there is no folder"),
        (("cub", products), 1, "holds Stanford Online Products (sop), not CUB-200-2011"),
        (("cub", products / "a_final"), 1, "CUB_200_2011.tgz"),
        (("cub",), 2, "name the folder of CUB-200-2011 too"),
        (("sop", products, "--level", "top"), 2, "has labels of its own"),
        (("",), 2, "an argument is empty"),
        ((products, "--level", "all"), 2, "unknown level 'all'"),
    ):
        ended, _, error = call("data", "check", *words)
        assert ended == code
        assert message in error
        assert len(error.strip().splitlines()) == 1
