"""selftaught explore: a local page with a map of the photos."""

from dataclasses import replace
from pathlib import Path

from selftaught.cli.model_use import embed_whitened, load_model, refuse_options
from selftaught.cli.options import ModelUse
from selftaught.data import ImageFolder, open_images
from selftaught.embedder import Embedder
from selftaught.errors import UsageError, printable
from selftaught.explore import Exhibit, Version, check_installed, exhibit_folder, exhibit_index, serve
from selftaught.index import is_index, open_index
from selftaught.model_files import DESCRIPTION
from selftaught.run_folder import FLOOR
from selftaught.training import kept, load_snapshot


def explore(
    use: ModelUse,
    images: str | None,
    before: bool,
    snapshots: bool,
    port: int,
    selections: Path,
    browser: bool,
    allow_skipped: bool,
) -> None:
    check_installed()
    if is_index(use.run):
        refuse_options(use)
        if before or snapshots:
            raise UsageError("an index holds vectors of one model: give the run and the folder of images instead")
        exhibit = _open(Path(use.run), images, use.device)
    else:
        if images is None:
            load_model(use)  # raises an error if there is none
            raise UsageError(f"{printable(use.run)} is a model: name the folder of images to explore with it")
        found = open_images(images, "all", allow_skipped=allow_skipped)
        exhibit = embed_versions(found, load_models(use, before, snapshots), use.whiten, allow_skipped)
    serve(exhibit, port, selections, browser=browser)


def load_models(use: ModelUse, before: bool, snapshots: bool) -> dict[str, Embedder]:
    """Models by their names on the page, in the order of their training; the last one is the run's model."""
    run, embedder = Path(use.run), load_model(use)
    models: dict[str, Embedder] = {}
    if before:
        if embedder.description["recipe"] == "none":
            raise UsageError(f"{printable(run)} was not trained: leave --before out")
        models["before training"] = _load_untrained(use, embedder)
    if snapshots:
        epochs = kept(run)
        if not epochs:
            raise UsageError(
                f"{printable(run)} has kept no networks: leave --snapshots out, or train with --snapshots 1"
            )
        for epoch in epochs:
            student = load_snapshot(run, epoch, embedder.device).student
            models[f"epoch {epoch}"] = Embedder(student, embedder.description)
    return {**models, "after training" if models else run.name: embedder}


def _load_untrained(use: ModelUse, embedder: Embedder) -> Embedder:
    """The untrained model that the run has kept, or else its plain backbone, seeing images at the run's size."""
    untrained = Path(use.run, FLOOR)
    if (untrained / DESCRIPTION).is_file():
        return load_model(replace(use, run=str(untrained)))
    return load_model(replace(use, run=embedder.description["backbone"], size=embedder.preprocessing.use_size))


def embed_versions(
    images: ImageFolder, models: dict[str, Embedder], whitened: bool | None, allow_skipped: bool
) -> Exhibit:
    """The images that can be read, as each of the models sees them; ``whitened``: as for :func:`embed_whitened`."""
    versions = []
    whitened = whitened if len(models) == 1 else bool(whitened)  # several are compared as they are
    for name, loaded in models.items():
        model, images, vectors, _ = embed_whitened(loaded, whitened, images, allow_skipped)
        versions.append(Version(name, model, vectors))
    return exhibit_folder(images, versions)


def _open(place: Path, images: str | None, device: str) -> Exhibit:
    moved = Path(images) if images is not None else None
    if moved is not None and not moved.is_dir():
        raise UsageError(f"there is no folder {printable(moved)}")
    index = open_index(place, device)
    if not len(index):
        raise UsageError(f"the index {printable(place)} is empty: there is nothing to explore")
    return exhibit_index(index, moved)
