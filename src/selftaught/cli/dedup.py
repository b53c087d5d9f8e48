"""selftaught dedup: copies of one picture, shown, listed, and moved by a script. Nothing is ever deleted."""

from pathlib import Path

from selftaught.cli.model_use import embed_folder, load_whitened, refuse_among
from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import open_images
from selftaught.duplicates import (
    SAMPLE,
    distances_of_known_copies,
    find_copies,
    leave_out_links,
    moving_script,
    write_duplicates_page,
)
from selftaught.errors import UsageError, counted, printable
from selftaught.files import check_output, fill_folder, plain_path, to_csv, write_atomically

TABLE, PAGE = "duplicates.csv", "duplicates.html"


def dedup(
    use: ModelUse, source: str, out: Path, threshold: float | None, script: Path | None, allow_skipped: bool
) -> None:
    if threshold is not None and not 0 <= threshold < float("inf"):
        raise UsageError(f"the threshold must be a distance of 0 or more, but is {threshold}")
    images = open_images(source, "all", allow_skipped=allow_skipped)
    refuse_among(images, out)
    if script is not None and images.members is not None:
        raise UsageError(f"{printable(source)} lies in tar files: a script cannot move images out of them")
    distinct = leave_out_links(images)
    reporter = Reporter()
    with fill_folder(out) as place:
        if script is not None:
            check_output(script, b"# Written by selftaught dedup;", "--script")
        if len(distinct) < len(images):
            reporter.say(f"left out {counted(len(images) - len(distinct), 'link')} to what is there already")
        embedder = load_whitened(use, distinct)
        images, vectors, _ = embed_folder(embedder, distinct, allow_skipped)
        with reporter.work("making test copies", min(SAMPLE, len(images))) as tell:
            known = distances_of_known_copies(embedder, images, vectors, advance=tell)
        with reporter.work("comparing files", len(images)) as tell:
            found = find_copies(images, vectors, known, threshold, advance=tell)
        write_atomically(place / TABLE, to_csv(found.rows()))
        write_duplicates_page(place / PAGE, found)
        if script is not None:
            write_atomically(script, moving_script(found, plain_path(out) / "moved"))
    print(found.summarize())
    print(f"threshold: {found.describe_threshold()}")
    print(f"page:  {printable(out / PAGE)}\ntable: {printable(out / TABLE)}")
    if script is not None:
        copies = counted(found.moved, "copy", "copies")
        print(f"script: {printable(script)} moves {copies} when you run it with sh; nothing was moved yet")
