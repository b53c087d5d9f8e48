"""selftaught explore: a local page with a map of the photos."""

from pathlib import Path

from selftaught.cli.model_commands import embed_folder
from selftaught.data import open_images
from selftaught.embedder import Embedder
from selftaught.errors import UsageError, printable
from selftaught.explore import Exhibit, Version, exhibit_folder, exhibit_index, serve
from selftaught.explore.server import check_installed
from selftaught.index import is_index, open_index


def explore(
    what: Path,
    images: str | None,
    *,
    before: bool,
    port: int,
    selections: Path,
    browser: bool,
    device: str,
    allow_skipped: bool,
) -> None:
    check_installed()
    serve(_exhibit(what, images, before, device, allow_skipped), port, selections, browser=browser)


def _exhibit(what: Path, images: str | None, before: bool, device: str, allow_skipped: bool) -> Exhibit:
    if is_index(what):
        moved = Path(images) if images is not None else None
        if moved is not None and not moved.is_dir():
            raise UsageError(f"there is no folder {printable(moved)}")
        if before:
            raise UsageError("an index holds vectors of one model: give the run instead of the index with --before")
        index = open_index(what, device)
        if not len(index):
            raise UsageError(f"the index {printable(what)} is empty: there is nothing to explore")
        return exhibit_index(index, moved)
    if images is None:
        raise UsageError(f"{printable(what)} is a model: name the folder of images to explore with it")
    found = open_images(images, "all")
    embedder = Embedder.load(what, device)
    found, vectors, _ = embed_folder(embedder, found, allow_skipped)
    versions = [Version("after training" if before else what.name, embedder, vectors)]
    if before:
        if embedder.description["recipe"] == "none":
            raise UsageError(f"{printable(what)} was not trained: leave --before out")
        plain = Embedder.load(embedder.description["backbone"], device)
        _, vectors, _ = embed_folder(plain, found, allow_skipped)
        versions.insert(0, Version("before training", plain, vectors))
    return exhibit_folder(found, versions)
