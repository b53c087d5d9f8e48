import os
from pathlib import Path

import pytest
from trees import make_compcars, make_cub, make_nabirds, touch

from selftaught.data import absolute, find_images, join_folders, open_images
from selftaught.data.benchmarks import read_benchmark
from selftaught.errors import SelftaughtError, UsageError


def test_a_plain_folder_is_opened_whatever_the_split(tmp_path: Path) -> None:
    touch(tmp_path, "cat/1.jpg", "2.jpg")
    assert open_images(tmp_path) == open_images(str(tmp_path), "test") == find_images(tmp_path)


def test_a_benchmark_is_opened_by_name_with_the_split_named_or_asked_for(tmp_path: Path) -> None:
    make_cub(tmp_path)
    for source, split in (("", "train"), (":test", "test"), (":all", "all"), (":train-b", "train-b")):
        assert open_images(f"cub:{tmp_path}{source}") == read_benchmark("cub", tmp_path, split)
    assert open_images(f"cub:{tmp_path}", "test") == read_benchmark("cub", tmp_path, "test")
    assert open_images(f"cub:{tmp_path}:train", "test") == read_benchmark("cub", tmp_path, "train")
    assert open_images(Path(f"cub:{tmp_path}")) == read_benchmark("cub", tmp_path, "train")


def test_sets_that_the_paper_trains_on_as_a_whole_are_opened_as_a_whole(tmp_path: Path) -> None:
    make_nabirds(tmp_path / "birds")
    make_compcars(tmp_path / "cars")
    assert len(open_images(f"nabirds:{tmp_path / 'birds'}")) == 6
    assert len(open_images(f"nabirds:{tmp_path / 'birds'}:train")) == 3
    assert len(open_images(f"compcars:{tmp_path / 'cars'}")) == 6
    with pytest.raises(UsageError, match="has no images in split 'test': choose from all"):
        open_images(f"compcars:{tmp_path / 'cars'}", "test")


def test_a_folder_of_that_very_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    touch(tmp_path, "cub:birds/1.jpg", "old:photos/2.jpg")
    assert open_images("cub:birds").files == ("1.jpg",)
    assert open_images("old:photos").files == ("2.jpg",)
    assert absolute("cub:birds") == str(tmp_path / "cub:birds")


def test_a_root_may_have_colons(tmp_path: Path) -> None:
    for name in ("a:b", "c:test"):
        make_cub(tmp_path / name)
        assert len(open_images(f"cub:{tmp_path / name}")) == 8
        assert len(open_images(f"cub:{tmp_path / name}:test")) == 4
        assert absolute(f"cub:{tmp_path / name}:test") == f"cub:{tmp_path / name}:test"


def test_wrong_names_splits_and_folders_are_told_apart(tmp_path: Path) -> None:
    make_cub(tmp_path / "cub")
    with pytest.raises(UsageError, match="unknown data set 'cubs': did you mean 'cub'"):
        open_images(f"cubs:{tmp_path}")
    with pytest.raises(UsageError, match="unknown split 'tset': did you mean 'test'"):
        open_images(f"cub:{tmp_path / 'cub'}:tset")
    with pytest.raises(UsageError, match=r"there is no folder .*gone to hold CUB-200-2011"):
        open_images(f"cub:{tmp_path / 'gone'}:test")
    with pytest.raises(UsageError, match="cub: needs the folder of CUB-200-2011"):
        open_images("cub:")
    with pytest.raises(UsageError, match="there is no folder with:colon"):
        open_images("./with:colon")
    with pytest.raises(SelftaughtError, match="does not hold CUB-200-2011"):
        open_images(f"cub:{tmp_path / 'cub' / 'images'}")


def test_an_absolute_source_means_the_same_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cub(tmp_path / "home" / "cub")
    touch(tmp_path, "home/photos/1.jpg")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    sources = ["cub:cub", "cub:./cub:test", "cub:~/cub", "photos"]
    opened = [open_images(source).files for source in sources]
    fixed = [absolute(source) for source in sources]
    assert fixed == [
        f"cub:{tmp_path}/home/cub",
        f"cub:{tmp_path}/home/cub:test",
        f"cub:{tmp_path}/home/cub",
        f"{tmp_path}/home/photos",
    ]
    monkeypatch.chdir(os.sep)
    assert [open_images(source).files for source in fixed] == opened


def test_a_labeled_and_an_unlabeled_benchmark_are_joined(tmp_path: Path) -> None:
    make_cub(tmp_path / "CUB_200_2011")
    make_nabirds(tmp_path / "nabirds")
    both = join_folders(open_images(f"cub:{tmp_path}"), open_images(f"nabirds:{tmp_path}"))
    assert both.root == tmp_path
    assert both.given is not None
    assert both.given.count("") == 6
    assert both.given[:2] == ("001.Bird_1", "001.Bird_1")
    assert all(Path(both.path(i)).is_file() for i in range(len(both)))
