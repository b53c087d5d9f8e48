import errno
import os
import stat
from pathlib import Path

import pytest

from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import (
    as_path,
    as_text,
    check_output,
    delete,
    lock_output,
    read_json,
    remove_leftovers,
    write_atomically,
)


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_atomically(target, "old")

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(SelftaughtError, match="No space left on device; the old file is kept"):
        write_atomically(target, fail)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(target, lambda _: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]
    assert target.read_text() == "old"


def test_a_file_is_written_where_folders_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", flush)
    write_atomically(tmp_path / "file.txt", "new")
    assert (tmp_path / "file.txt").read_text() == "new"


def test_a_place_that_cannot_be_written_to_is_said_in_one_line() -> None:
    with pytest.raises(SelftaughtError, match=r"cannot write /proc/nothing\.txt: [^;]*$"):
        write_atomically(Path("/proc/nothing.txt"), "x")
    with (
        pytest.raises(SelftaughtError, match=r"/proc/nothing\.npy cannot be written"),
        lock_output(Path("/proc/nothing.npy")),
    ):
        pass


def test_names_as_long_as_the_file_system_allows_can_be_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / ("x" * 250), "x")
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".checkpoint.pt.123.tmp").touch()
    (tmp_path / "mine.tmp").touch()
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.tmp"]


def test_a_json_file_that_is_damaged_or_holds_no_object_counts_as_none(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    assert read_json(file) is None
    assert read_json(tmp_path) is None
    for content in (b"", b'{"a": 1', b"[1]", b"null", b"\xff\xfe", b"[" * 100_000):
        file.write_bytes(content)
        assert read_json(file) is None
    file.write_bytes(b'{"name": "caf\xe9"}')  # a path may hold bytes that are not text
    assert read_json(file) == {"name": "caf\udce9"}


def test_deleting_a_pipe_does_not_wait_for_its_other_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder" / "in it").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("pipe", "link", "folder", "nothing"):
        delete(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_text_of_a_path_leads_back_to_it() -> None:
    for path in ("a/b.jpg", "caf\udce9\udcff.png", "\\", "\\udc", "c:\\photos", "\\udce9", "\\udc5cudce9\udce9"):
        assert as_path(as_text(path)) == path


@pytest.mark.parametrize("content", [b"mine", b"mine\nours,to write\n", b"\xff\xd8\xff photo"])
def test_a_file_of_something_else_is_not_replaced(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_bytes(content)
    with pytest.raises(
        UsageError, match=r"table\.csv would be replaced, .*: give another --csv, or move the file away"
    ):
        check_output(file, rb"\Aours,to write\n", "--csv")


def test_a_file_of_the_same_command_or_an_empty_one_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    for content in (None, b"", b"ours,to write\n1,2\n"):
        if content is not None:
            file.write_bytes(content)
        check_output(file, rb"\Aours,to write\n", "--csv")
