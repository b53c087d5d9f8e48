import csv
import os
import tracemalloc
from pathlib import Path

import pytest
from trees import touch

from selftaught.data import ImageFolder, Skipped, check_skipped, find_images, join_folders, skipped_table
from selftaught.errors import SelftaughtError, UsageError

ODD = ["with space.jpg", 'quote\'s "here".PNG', "emoji 🚗.jpeg", "new\nline.webp", "UPPER.TIFF"]


def test_images_are_found_by_extension_however_nested(tmp_path: Path) -> None:
    touch(tmp_path, *ODD, "a/b/x.gif", "a/y.bmp", "a/phone.HEIC", "notes.txt", "a/z", ".hidden.jpg")
    assert set(find_images(tmp_path).files) == {*ODD, "a/b/x.gif", "a/y.bmp", "a/phone.HEIC"}
    assert list(find_images(tmp_path).files) == sorted(find_images(tmp_path).files)


def test_links_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    touch(tmp_path, "photos/deep/a.jpg", "elsewhere/b.jpg")
    (tmp_path / "photos" / "deep" / "up").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "self").symlink_to(tmp_path / "photos" / "self")
    assert find_images(tmp_path / "photos").files == ("deep/a.jpg", "out/b.jpg")


def test_the_pictures_of_a_run_among_the_images_are_not_learned_from(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "run/curves.png", "run/settings.json", "run/checkpoint.pt")
    assert find_images(tmp_path).files == ("a.jpg",)


def test_a_large_folder_is_listed_with_little_memory_beside_its_names(tmp_path: Path) -> None:
    for i in range(4000):
        os.close(os.open(tmp_path / f"{i:06d}.jpg", os.O_CREAT))
    find_images(tmp_path)
    tracemalloc.start()
    try:
        images = find_images(tmp_path)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(images) == 4000
    assert kept < 100 * 4000
    assert most < 1.3 * kept


def test_labels_of_one_class_are_one_text() -> None:
    images = ImageFolder(Path("root"), ("cat/1.jpg", "cat/2.jpg", "dog/3.jpg"))
    first, second, _ = images.labels()
    assert first is second


def test_a_name_that_is_not_unicode_is_found(tmp_path: Path) -> None:
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9.jpg", os.O_CREAT))
    images = find_images(tmp_path)
    assert Path(images.path(0)).exists()
    assert "caf" in skipped_table([Skipped(images.files[0], "x")])


def test_a_missing_folder_a_file_and_an_empty_folder_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "file.jpg").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no folder"):
        find_images(tmp_path / "missing")
    with pytest.raises(UsageError, match="is a file"):
        find_images(tmp_path / "file.jpg")
    with pytest.raises(SelftaughtError, match="there are no images"):
        find_images(tmp_path / "empty")


def test_given_labels_stand_in_for_folders_and_stay_with_their_files() -> None:
    images = ImageFolder(Path("root"), ("a.jpg", "b.jpg", "c.jpg"), ("10", "9", "10"))
    assert images.labels() == ("10", "9", "10")
    assert images.classes() == [0, 1, 0]
    assert images.without([Skipped("a.jpg", "empty file")]).labels() == ("9", "10")
    assert images.only(["c.jpg", "b.jpg"]) == ImageFolder(Path("root"), ("c.jpg", "b.jpg"), ("10", "9"))
    with pytest.raises(SelftaughtError, match=r"1 image is no longer among those of root: the first is d\.jpg"):
        images.only(["a.jpg", "d.jpg"])


def test_images_without_a_label_are_counted_when_labels_are_asked_for() -> None:
    images = ImageFolder(Path("root"), ("a.jpg", "b.jpg", "c.jpg"), ("x", "", ""))
    with pytest.raises(SelftaughtError, match="2 of 3 images in root without a label"):
        images.labels()
    assert images.only(["a.jpg"]).labels() == ("x",)


def test_two_folders_are_joined_below_their_common_parent_with_the_labels_of_the_first() -> None:
    first = ImageFolder(Path("/data/birds"), ("wren/2.jpg", "tit/1.jpg"))
    second = ImageFolder(Path("/data/more/photos"), ("wren/2.jpg", "3.jpg"))
    both = join_folders(first, second)
    assert both.root == Path("/data")
    assert both.files == ("birds/wren/2.jpg", "birds/tit/1.jpg", "more/photos/wren/2.jpg", "more/photos/3.jpg")
    assert both.given == ("wren", "tit", "", "")


def test_an_image_in_both_joined_folders_is_kept_once_as_labeled() -> None:
    inner = ImageFolder(Path("/data/birds"), ("wren/2.jpg",))
    outer = ImageFolder(Path("/data"), ("birds/tit/1.jpg", "birds/wren/2.jpg"))
    assert join_folders(inner, outer) == ImageFolder(
        Path("/data"), ("birds/wren/2.jpg", "birds/tit/1.jpg"), ("wren", "")
    )
    assert join_folders(outer, inner) == ImageFolder(Path("/data"), outer.files, ("birds", "birds"))


def test_joining_needs_labels_in_the_first_folder_only() -> None:
    flat = ImageFolder(Path("/data/flat"), ("1.jpg",))
    assert join_folders(ImageFolder(Path("/data/a"), ("x/1.jpg",)), flat).given == ("x", "")
    with pytest.raises(SelftaughtError, match="in no class folder"):
        join_folders(flat, flat)


def test_a_few_unreadable_images_are_fine_and_many_are_an_error(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{i}.jpg" for i in range(40)))
    images = find_images(tmp_path)
    two = [Skipped(file, "empty file") for file in images.files[:2]]
    three = [Skipped(file, "empty file") for file in images.files[:3]]
    check_skipped(images, two, allow=False)
    check_skipped(images, three, allow=True)
    with pytest.raises(SelftaughtError, match=r"3 of 40 images .* --allow-skipped"):
        check_skipped(images, three, allow=False)
    with pytest.raises(SelftaughtError, match="none of the images in"):
        check_skipped(images, [Skipped(file, "empty file") for file in images.files], allow=True)
    assert len(images.without(three)) == 37


def test_the_table_of_skipped_files_survives_odd_names() -> None:
    table = skipped_table([Skipped(name, "why, exactly?") for name in ODD])
    assert list(csv.reader(table.splitlines(keepends=True)))[1:] == [[name, "why, exactly?"] for name in ODD]
