from pathlib import Path

import pytest
from trees import touch

from selftaught.data import Skipped, find_images, open_images
from selftaught.errors import SelftaughtError, UsageError

NESTED = ("Fruit/Apple/1.jpg", "Fruit/Apple/2.jpg", "Fruit/Pear/3.jpg", "Milk/Soy/4.jpg")


def test_innermost_folders_name_classes_where_images_lie_only_there(tmp_path: Path) -> None:
    touch(tmp_path, *NESTED)
    images = open_images(tmp_path)
    assert images.labels() == ("Fruit/Apple", "Fruit/Apple", "Fruit/Pear", "Milk/Soy")
    assert open_images(tmp_path, level="top").labels() == ("Fruit", "Fruit", "Fruit", "Milk")
    sentence = images.describe_labels()
    assert sentence.startswith("3 classes: the folders that hold the images, such as Fruit/Apple;")
    assert sentence.endswith("would be 2 classes (--level top)")
    assert "2 classes: the folders directly in" in open_images(tmp_path, level="top").describe_labels()


def test_outer_folders_name_classes_where_images_lie_beside_folders_of_images(tmp_path: Path) -> None:
    touch(tmp_path, *NESTED, "Fruit/5.jpg")
    images = open_images(tmp_path)
    assert set(images.labels()) == {"Fruit", "Milk"}
    assert set(open_images(tmp_path, level="leaf").labels()) == {"Fruit", "Fruit/Apple", "Fruit/Pear", "Milk/Soy"}


def test_a_part_of_the_images_keeps_the_level(tmp_path: Path) -> None:
    touch(tmp_path, *NESTED, "Fruit/5.jpg")
    images = find_images(tmp_path)
    assert set(images.without([Skipped("Fruit/5.jpg", "empty file")]).labels()) == {"Fruit", "Milk"}
    assert set(images.only(NESTED).labels()) == {"Fruit", "Milk"}


def test_one_level_of_folders_needs_no_explanation(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "dog/2.jpg")
    assert open_images(tmp_path).describe_labels() == "2 classes, such as cat"


def test_a_folder_in_two_parts_uses_the_innermost_folders_too(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{part}/{file}" for part in ("train", "test") for file in NESTED))
    assert len(set(open_images(f"folder:{tmp_path}:test").labels())) == 3


def test_labels_come_from_a_table(tmp_path: Path) -> None:
    touch(tmp_path, "photos/a.jpg", "photos/x/b, c.jpg", "photos/x/d.jpg")
    table = tmp_path / "labels.csv"
    absolute = tmp_path / "photos" / "x" / "d.jpg"
    table.write_text(f'\ufeffid,label,path\n1,cat,./a.jpg\n2,dog,"x/b, c.jpg"\n3,cat,{absolute}\n4,cat,gone.jpg\n')
    images = open_images(tmp_path / "photos", labels=table)
    assert images.labels() == ("cat", "dog", "cat")
    assert images.describe_labels() == "2 classes, such as cat"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must name the columns path and label"),
        ("file,class\na.jpg,cat\n", "must name the columns path and label"),
        ("path,label\na.jpg,\n", r"line 2 of .*labels\.csv lacks a path or a label"),
        ("path,label\na.jpg\n", "line 2 .* lacks"),
        ("path,label\na.jpg,cat\n./a.jpg,dog\n", r"has two labels for a\.jpg: cat and dog"),
        ("path,label\nb.jpg,cat\n", r"1 of 1 images in .* without a label in .*labels\.csv, the first is a\.jpg"),
        ('path,label\n"a.jpg,cat\n', "cannot be read as CSV"),
    ],
)
def test_a_wrong_table_is_one_sentence(tmp_path: Path, content: str, message: str) -> None:
    touch(tmp_path, "photos/a.jpg")
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        open_images(tmp_path / "photos", labels=tmp_path / "labels.csv")
    assert "\n" not in str(caught.value)


def test_labels_and_levels_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg")
    (tmp_path / "folder").mkdir()
    for options, message in (
        ({"level": "middle"}, "unknown level 'middle': choose from leaf, top"),
        ({"level": "top", "labels": "x.csv"}, "not both"),
        ({"labels": "x.csv"}, "there is no file of labels 'x.csv'"),
        ({"labels": ""}, "there is no file of labels ''"),
        ({"labels": tmp_path / "folder"}, "there is no file of labels"),
    ):
        with pytest.raises(UsageError, match=message):
            open_images(tmp_path, **options)


def test_an_empty_source_is_refused() -> None:
    with pytest.raises(UsageError, match="empty text"):
        open_images("")


def test_one_class_is_nothing_to_measure(tmp_path: Path) -> None:
    touch(tmp_path, "Fruit/Apple/1.jpg", "Fruit/Pear/2.jpg")
    open_images(tmp_path).check_classes()
    with pytest.raises(SelftaughtError, match="are of one class"):
        open_images(tmp_path, level="top").check_classes()
