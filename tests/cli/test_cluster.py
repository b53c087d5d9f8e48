import os
import shutil
from pathlib import Path

import pytest

from conftest import Call, read_csv
from selftaught import Embedder


def test_groups_are_found_named_and_found_again(call: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    code, text, _ = call("cluster", run, photos, "--out", tmp_path / "a", "--smallest", 2)
    assert code == 0
    found = read_csv(tmp_path / "a" / "images.csv")
    assert len(found) == 24
    groups = read_csv(tmp_path / "a" / "groups.csv")
    assert groups
    assert f"are in {len(groups)} group" in text
    for group in groups:
        assert int(group["images"]) == sum(row["group"] == group["group"] for row in found) >= 2
    page = (tmp_path / "a" / "groups.html").read_text()
    assert page.count("<input") == len(groups)
    assert groups[0]["center"] in page

    named = (tmp_path / "a" / "groups.csv").read_text().splitlines()
    named[1] = named[1].replace("1,,", '1,"the ""first"", /group",', 1)
    (tmp_path / "named.csv").write_text("\ufeff" + "\n".join([named[0], *named[:0:-1]]) + "\n")
    words = ("cluster", run, photos, "--out", tmp_path / "b", "--names", tmp_path / "named.csv")
    code, text, _ = call(*words, *(["--links"] if os.name == "posix" else []))
    assert code == 0
    again = read_csv(tmp_path / "b" / "images.csv")
    before = {row["path"] for row in found if row["group"] == "1"}
    named_now = {row["path"] for row in again if row["name"] == 'the "first", /group'}
    assert before & named_now
    if os.name == "posix":
        (folder,) = [path for path in (tmp_path / "b" / "links").iterdir() if path.name.startswith("the _first_")]
        assert {str(link.resolve().relative_to(photos.resolve())) for link in folder.iterdir()} == named_now


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_to_photos_with_long_names_have_names_that_fit(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    deep = tmp_path / "photos" / ("写真" * 30) / ("夏休み" * 20)
    shutil.copytree(photos, deep)
    words = ("cluster", run, tmp_path / "photos", "--out", tmp_path / "a", "--smallest", 2)
    code, text, error = call(*words, "--links")
    assert (code, error) == (0, "finding groups\n")
    links = list((tmp_path / "a" / "links").glob("*/*"))
    assert f"{len(links)} of 24 photos" in text
    assert all(link.exists() for link in links)


def test_where_there_are_no_groups_none_can_be_named(call: Call, run: Path, photos: Path, tmp_path: Path) -> None:
    code, text, _ = call("cluster", run, photos, "--out", tmp_path / "a", "--smallest", 24, "--links")
    assert (code, text.splitlines()[0]) == (0, "0 of 24 photos are in 0 groups, 24 in none.")
    assert "links:" not in text, "there are none"
    page = (tmp_path / "a" / "groups.html").read_text()
    assert "finds smaller ones" in page
    assert "Save the names" not in page


def test_what_cannot_be_done_is_one_sentence(
    call: Call, run: Path, embedder: Embedder, photos: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for content in ("", "a,b\n1,2\n", "group,name,images,limit,model,center\n1,,3,x,m,AAAA\n"):
        (tmp_path / "bad.csv").write_text(content)
        code, _, error = call("cluster", run, photos, "--out", out, "--names", tmp_path / "bad.csv")
        assert (code, "not a groups.csv" in error) == (2, True)
    for model in ("m", embedder.identity):  # the center is one number
        (tmp_path / "other.csv").write_text(f"group,name,images,limit,model,center\n1,,3,1,{model},AAA=\n")
        code, _, error = call("cluster", run, photos, "--out", out, "--names", tmp_path / "other.csv")
        assert (code, "another model" in error) == (2, True)
    assert "known already" in call("cluster", run, photos, "--names", tmp_path / "other.csv", "--whiten")[2]
    assert "cannot read" in call("cluster", run, photos, "--out", out, "--names", tmp_path / "none.csv")[2]
    os.mkfifo(tmp_path / "pipe.csv")
    assert "not a regular" in call("cluster", run, photos, "--out", out, "--names", tmp_path / "pipe.csv")[2]
    assert not out.exists()


def test_groups_of_photos_seen_in_another_way_are_not_mixed(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    assert call("cluster", run, photos, "--out", tmp_path / "a", "--smallest", 2, "--size", 48)[0] == 0
    again = ("cluster", run, photos, "--names", tmp_path / "a" / "groups.csv")
    code, _, error = call(*again, "--out", tmp_path / "b")
    assert code == 2
    assert "another --size, --mirror or --scales" in error
    assert call(*again, "--out", tmp_path / "c", "--size", 48)[0] == 0
