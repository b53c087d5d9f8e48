import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path

import pytest
from PIL import Image

from selftaught.data import (
    ImageFolder,
    Skipped,
    absolute,
    find_images,
    join_folders,
    open_image,
    open_images,
)
from selftaught.data.images import stamp
from selftaught.data.shards import expand
from selftaught.data.tar_index import Member
from selftaught.errors import ImageError, SelftaughtError, UsageError

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9 + number, 7), (20 * number, 0, 0)).save(file, "PNG")
    return file.getvalue()


def write(path: Path, members: dict[str, bytes], kind: int = tarfile.GNU_FORMAT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def shards(folder: Path, count: int = 3, each: int = 2) -> Path:
    for shard in range(count):
        names = [f"{shard * each + i:04d}" for i in range(each)]
        content = {f"{name}.png": picture(int(name)) for name in names} | {
            f"{name}.cls": str(int(name) % 2).encode() + b"\n" for name in names
        }
        write(folder / f"{shard:03d}.tar", content)
    return folder


def test_braces_stand_for_ranges_and_lists_as_in_a_shell() -> None:
    assert expand("x/{000..002}.tar") == ["x/000.tar", "x/001.tar", "x/002.tar"]
    assert expand("{9..11}.tar") == ["9.tar", "10.tar", "11.tar"]
    assert expand("{2..0}.tar") == ["2.tar", "1.tar", "0.tar"]
    assert expand("{train,val-{1..2}}.tar") == ["train.tar", "val-1.tar", "val-2.tar"]
    assert expand("plain{x}.tar") == ["plain{x}.tar"]
    with pytest.raises(UsageError, match="over 100000 shards"):
        expand("{0..999}/{0..999}.tar")


def test_shards_by_range_list_wildcard_and_name_give_their_images(tmp_path: Path) -> None:
    shards(tmp_path / "s")
    everything = open_images(f"{tmp_path}/s/{{000..002}}.tar")
    assert everything.root == tmp_path / "s"
    assert everything.files == tuple(f"{i // 2:03d}.tar/{i:04d}.png" for i in range(6))
    assert open_images(f"{tmp_path}/s/*.tar") == open_images(f"{tmp_path}/s/{{000,001,002}}.tar") == everything
    assert open_images(tmp_path / "s" / "001.tar").files == everything.files[2:4]
    assert open_images(f"{tmp_path}/s/{{001,001}}.tar") == open_images(tmp_path / "s" / "001.tar")
    assert open_images(f"{tmp_path}/s/{{*,./000,000}}.tar").files == everything.files
    sizes = [open_image(everything.path(i)).size for i in range(6)]
    assert sizes == [(9 + i, 7) for i in range(6)]


def test_shards_of_several_folders_are_named_from_their_common_parent(tmp_path: Path) -> None:
    shards(tmp_path / "a", 1)
    shards(tmp_path / "b", 1)
    images = open_images(f"{tmp_path}/{{a,b}}/000.tar")
    assert images.root == tmp_path
    assert images.files[::2] == ("a/000.tar/0000.png", "b/000.tar/0000.png")
    assert open_image(images.path(3)).size == (10, 7)


@pytest.mark.parametrize("kind", FORMATS)
def test_members_lie_where_the_standard_library_finds_them(kind: str, tmp_path: Path) -> None:
    deep = "/".join(["a long folder's name"] * 6)
    names = ["./1.jpg", f"{deep}/2.jpg", "ümlaut/3.PNG", "empty.jpg", "4.jpeg"]
    if kind != "ustar":
        names.append("x" * 250 + ".webp")
    content = {name: os.urandom(40 * i) if "empty" not in name else b"" for i, name in enumerate(names, 1)}
    with tarfile.open(write(tmp_path / "x.tar", content, FORMATS[kind]), "a") as archive:
        folder = tarfile.TarInfo("folder.jpg")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    images = open_images(tmp_path / "x.tar")
    assert images.files == tuple(f"x.tar/{name.removeprefix('./')}" for name in names)
    for i, name in enumerate(names):
        member = images.path(i)
        assert isinstance(member, Member)
        raw = Path(member.archive).read_bytes()[member.offset : member.offset + member.size]
        assert raw == content[name]


def test_a_hard_link_is_the_file_it_names_and_a_later_member_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tar", {"a.png": picture(1), "b.png": picture(2)})
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("c.png")
        link.type, link.linkname = tarfile.LNKTYPE, "b.png"
        archive.addfile(link)
        newer = tarfile.TarInfo("a.png")
        newer.size = len(picture(5))
        archive.addfile(newer, io.BytesIO(picture(5)))
    images = open_images(path)
    assert images.files == ("x.tar/a.png", "x.tar/b.png", "x.tar/c.png")
    assert [open_image(images.path(i)).width for i in range(3)] == [14, 11, 11]


def test_a_member_is_a_path_that_can_be_sent_to_other_processes(tmp_path: Path) -> None:
    images = open_images(shards(tmp_path, 1) / "000.tar")
    member = images.path(1)
    assert isinstance(member, Member)
    assert member == str(member) == f"{tmp_path}/000.tar/0001.png"
    assert hash(member) == hash(str(member))
    copy = pickle.loads(pickle.dumps(member))
    assert (copy, copy.archive, copy.offset, copy.size) == (member, member.archive, member.offset, member.size)
    assert os.fspath(member) is member


def test_a_path_through_a_shard_that_is_only_text_is_looked_up(tmp_path: Path) -> None:
    write(tmp_path / "x.tar", {"cat/1.png": picture(3)})
    assert open_image(tmp_path / "x.tar" / "cat" / "1.png").size == (12, 7)
    assert open_image(f"{tmp_path}/x.tar/cat/1.png").size == (12, 7)
    for wrong in ("x.tar/cat/2.png", "x.tar/cat", "y.tar/cat/1.png"):
        with pytest.raises(ImageError, match="no such file"):
            open_image(tmp_path / wrong)
    (tmp_path / "photo.png").write_bytes(picture(0))
    with pytest.raises(ImageError, match="no such file"):
        open_image(tmp_path / "photo.png" / "1.png")


def test_labels_are_the_classes_beside_images_or_else_their_folders_or_else_an_error(tmp_path: Path) -> None:
    assert open_images(f"{shards(tmp_path)}/*.tar").labels() == ("0", "1") * 3
    folders = {"cat/1.png": picture(1), "dog/deep/2.png": picture(2)}
    shard = write(tmp_path / "f.tar", folders)
    assert open_images(shard).labels() == ("cat", "dog/deep")
    assert open_images(shard, level="top").labels() == ("cat", "dog")
    flat = open_images(write(tmp_path / "g.tar", folders | {"3.png": picture(3)}))
    assert len(flat) == 3
    with pytest.raises(SelftaughtError, match=r"no class folders: labels are a file KEY\.cls"):
        flat.labels()


@pytest.mark.parametrize("wrong", [None, b"", b" \n", b"\xff\xfe\x00", b"7" * 2000])
def test_a_class_that_is_missing_among_others_is_named_and_no_folder_stands_in_for_it(
    tmp_path: Path, wrong: bytes | None
) -> None:
    content = {"cat/1.png": picture(1), "cat/1.cls": b"7", "dog/2.png": picture(2)}
    images = open_images(write(tmp_path / "x.tar", content | ({} if wrong is None else {"dog/2.cls": wrong})))
    with pytest.raises(SelftaughtError, match=r"1 of 2 images in .* without a label, the first is x\.tar/dog/2\.png"):
        images.labels()


def test_hidden_members_and_other_files_are_left_out(tmp_path: Path) -> None:
    content = {"1.png": picture(1), "1.json": b"{}", "._1.png": b"x", ".x/2.png": picture(2), "a/.3.png": picture(3)}
    assert open_images(write(tmp_path / "x.tar", content)).files == ("x.tar/1.png",)


def test_photos_of_phones_are_listed_whether_they_can_be_read_or_not(tmp_path: Path) -> None:
    images = open_images(write(tmp_path / "x.tar", {"1.png": picture(1), "2.HEIC": b"\0\0\0\x18ftypheic" + bytes(50)}))
    assert images.files == ("x.tar/1.png", "x.tar/2.HEIC")
    with pytest.raises(ImageError, match=r"HEIC photos need|damaged|not an image"):
        open_image(images.path(1))


def test_what_is_wrong_with_shards_is_one_sentence(tmp_path: Path) -> None:
    whole = (shards(tmp_path, 1) / "000.tar").read_bytes()
    files = {
        "cut.tar": whole[: 512 + 40],
        "header.tar": whole[: whole.index(b"0001.png") + 100],
        "hurt.tar": whole.replace(b"0001.png", b"0002.png"),
        "text.tar": b"hello" * 400,
        "zip.tar": gzip.compress(whole),
        "zip.tar.gz": gzip.compress(whole),
        "empty.tar": b"",
        "zeros.tar": bytes(10240),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    cases = {
        "cut.tar": r"shard .*cut\.tar is cut off at byte 552",
        "header.tar": r"cut off at byte 1124",
        "hurt.tar": "damaged at byte",
        "text.tar": "is no tar file",
        "zip.tar": "is compressed: .* unpack it first",
        "zip.tar.gz": "is compressed: .* unpack it first",
        "empty.tar": r"shard .*empty\.tar is an empty file",
        "zeros.tar": "no images in",
        "{000..002}.tar": r"there is no shard .*001\.tar, one of the 3 of",
        "gone.tar": r"there is no shard .*gone\.tar$",
        "x*.tar": "no shard that matches",
        "{a..c}.tar": r"there is no shard .*: ranges are of numbers",
        "": r"there are no images in .*; its tar files are read as '.*/\*\.tar', in quotes",
    }
    for name, message in cases.items():
        with pytest.raises(SelftaughtError, match=message) as caught:
            open_images(f"{tmp_path}/{name}")
        assert "\n" not in str(caught.value)


def header(name: bytes, size: bytes, kind: bytes = b"0") -> bytes:
    """A tar header with whatever size, and the right sum."""
    block = bytearray(512)
    block[: len(name)], block[124 : 124 + len(size)], block[156:157] = name, size, kind
    block[148:156] = b" " * 8
    block[148:155] = b"%06o\0" % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    ("size", "kind", "message"),
    [
        (b"\xff" * 12, b"0", "damaged at byte 0"),
        (b"\xff" * 11 + b"\x00", b"L", "damaged at byte 0"),
        (b"\x80" + b"\xff" * 11, b"0", "cut off"),
        (b"77777777777\0", b"0", "cut off"),
        (b"-0000000777\0", b"0", "damaged at byte 0"),
        (b"00000000x77\0", b"0", "is damaged"),
        (b"00010000000\0", b"x", "damaged at byte 0"),
    ],
)
def test_a_size_that_cannot_be_is_an_error_and_no_endless_loop(
    tmp_path: Path, size: bytes, kind: bytes, message: str
) -> None:
    (tmp_path / "x.tar").write_bytes(header(b"a.png", size, kind) + bytes(4096))
    with pytest.raises(SelftaughtError, match=message):
        open_images(tmp_path / "x.tar")


@pytest.mark.parametrize("pax", ["-512", "9" * 30, "x", "1e3"])
def test_a_size_in_an_extended_header_that_cannot_be_is_an_error(tmp_path: Path, pax: str) -> None:
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a.png")
        entry.pax_headers = {"size": pax}
        archive.addfile(entry)
    with pytest.raises(SelftaughtError, match=r"damaged|cut off"):
        open_images(tmp_path / "x.tar")


@pytest.mark.parametrize("left", [0, 100])
def test_a_shard_cut_at_the_end_of_a_member_is_an_error(tmp_path: Path, left: int) -> None:
    path = write(tmp_path / "x.tar", {"1.png": picture(1), "2.png": picture(2)})
    with tarfile.open(path) as archive:
        second = archive.getmembers()[1].offset
    whole = path.read_bytes()
    path.write_bytes(whole[: second + left])
    with pytest.raises(SelftaughtError, match=rf"x\.tar is cut off at byte {second + left}"):
        open_images(path)
    path.write_bytes(whole[:second] + bytes(512))  # a single empty block is enough, as for other readers
    assert len(open_images(path)) == 1


def test_an_end_before_the_end_is_an_error(tmp_path: Path) -> None:
    """A hole of zeros where a copy was not finished, or two archives in one file: the rest would be left out."""
    path = write(tmp_path / "x.tar", {"1.png": picture(1), "2.png": picture(2)})
    with tarfile.open(path) as archive:
        second = archive.getmembers()[1].offset
    whole = path.read_bytes()
    for content in (whole[:second] + bytes(512) + whole[second + 512 :], whole[:second] + bytes(2**21), whole + whole):
        path.write_bytes(content)
        with pytest.raises(SelftaughtError, match=r"x\.tar has its end at byte \d+, and more after it"):
            open_images(path)
    path.write_bytes(whole + bytes(2**19))
    assert len(open_images(path)) == 2


def test_a_link_with_a_size_has_no_content_of_its_own(tmp_path: Path) -> None:
    first = write(tmp_path / "x.tar", {"1.png": picture(1)}).read_bytes()[:1024]
    link = bytearray(header(b"2.png", b"00000001000\0", b"1"))
    link[157:162] = b"1.png"
    link[148:156] = b" " * 8
    link[148:155] = b"%06o\0" % sum(link)
    rest = header(b"3.png", b"00000000000\0")
    (tmp_path / "x.tar").write_bytes(first + bytes(link) + rest + bytes(1024))
    assert open_images(tmp_path / "x.tar").files == ("x.tar/1.png", "x.tar/2.png", "x.tar/3.png")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_that_is_named_like_a_shard_or_an_image_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.tar")
    for source in ("x.tar", "*.tar"):
        with pytest.raises(UsageError, match="there is no shard"):
            open_images(tmp_path / source)
    os.mkfifo(tmp_path / "x.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    (tmp_path / "folder.png").mkdir()
    for name in ("x.png", "zero.png", "folder.png"):
        with pytest.raises(ImageError, match="not a file"):
            open_image(tmp_path / name)


def test_a_folder_that_is_named_like_a_shard_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "photos.tar").mkdir()
    (tmp_path / "photos.tar" / "1.png").write_bytes(picture(1))
    assert open_images(tmp_path / "photos.tar") == find_images(tmp_path / "photos.tar")


def test_unreadable_members_are_told_like_files(tmp_path: Path) -> None:
    images = open_images(write(tmp_path / "x.tar", {"1.png": b"no", "2.png": b"", "3.png": picture(1)[:-25]}))
    for i, message in enumerate(("not an image", "empty file", "damaged")):
        with pytest.raises(ImageError, match=message):
            open_image(images.path(i))
    last = images.path(2)
    with (tmp_path / "x.tar").open("r+b") as file:
        file.truncate(600)
    with pytest.raises(ImageError, match="cut off"):
        open_image(last)
    (tmp_path / "x.tar").unlink()
    with pytest.raises(ImageError, match="no such file"):
        open_image(last)


def test_the_stamp_of_an_image_changes_with_its_content_or_its_shard(tmp_path: Path) -> None:
    file = tmp_path / "1.png"
    file.write_bytes(picture(1))
    assert stamp(file) == stamp(str(file)) == (len(picture(1)), file.stat().st_mtime_ns)
    shard = write(tmp_path / "x.tar", {"1.png": picture(1)})
    member = open_images(shard).path(0)
    assert stamp(member) == (len(picture(1)), shard.stat().st_mtime_ns)
    os.utime(shard, ns=(5, 5))
    assert stamp(member) == (len(picture(1)), 5)
    assert stamp(tmp_path / "gone.png") == (-1, -1)


def test_an_absolute_pattern_means_the_same_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards(tmp_path / "s")
    monkeypatch.chdir(tmp_path)
    sources = ["s/{000..002}.tar", "s/*.tar", "s/001.tar", "{s/000,s/001}.tar"]
    opened = [open_images(source).files for source in sources]
    fixed = [absolute(source) for source in sources]
    assert fixed[0] == f"{tmp_path}/s/{{000..002}}.tar"
    monkeypatch.chdir(os.sep)
    assert [open_images(source).files for source in fixed] == opened
    monkeypatch.setenv("HOME", str(tmp_path))
    assert absolute("~/s/{000..002}.tar") == fixed[0]
    assert absolute(f"{{{tmp_path}/s,/y}}/{{0..1}}.tar") == f"{{{tmp_path}/s,/y}}/{{0..1}}.tar"


def test_a_part_of_the_images_keeps_labels_and_places(tmp_path: Path) -> None:
    images = open_images(f"{shards(tmp_path)}/*.tar")
    part = images.without([Skipped(images.files[0], "x")]).only([images.files[4], images.files[1]])
    assert part.labels() == ("0", "1")
    assert [open_image(part.path(i)).width for i in range(2)] == [13, 10]
    assert images.without([]) is images
    with pytest.raises(SelftaughtError, match="no longer among"):
        images.only(["009.tar/1.png"])


def test_shards_and_folders_are_joined(tmp_path: Path) -> None:
    labeled = open_images(f"{shards(tmp_path / 'shards', 2)}/*.tar")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "x.png").write_bytes(picture(8))
    plain = ImageFolder(tmp_path / "photos", ("x.png",), ("z",))
    for first, second, widths in ((labeled, plain, [9, 10, 11, 12, 17]), (plain, labeled, [17, 9, 10, 11, 12])):
        both = join_folders(first, second)
        assert both.root == tmp_path
        assert [open_image(both.path(i)).width for i in range(5)] == widths
        assert both.given == (*first.labels(), *[""] * len(second))
    again = join_folders(labeled, labeled)
    assert (again.files, again.labels()) == (labeled.files, labeled.labels())
    two = join_folders(labeled, open_images(f"{shards(tmp_path / 'more', 1)}/*.tar"))
    assert [open_image(two.path(i)).width for i in range(6)] == [9, 10, 11, 12, 9, 10]
