"""What the commands that use a model share: they load it, embed images with it, and say which could not be read."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from torch import Tensor
from torch.nn import functional as F

from selftaught.cli.options import ModelUse
from selftaught.console import Reporter
from selftaught.data import ImageFolder, Skipped, check_skipped
from selftaught.embedder import Embedder
from selftaught.encoding import BATCH_SIZE
from selftaught.errors import SelftaughtError, UsageError, counted, printable
from selftaught.model_files import DESCRIPTION
from selftaught.networks import WHITENED_FROM, WHITENED_ON

UNASKED = (
    "vectors are rescaled (half-whitened) on these images, so that fine differences count more; --no-whiten leaves "
    "them as they are"
)


def load_model(use: ModelUse) -> Embedder:
    """The model that a command is asked to use, with its options."""
    embedder = Embedder.load(use.run, use.device, size=use.size, mirror=use.mirror or None, scales=use.scales)
    if "epoch" in embedder.description:
        epoch, epochs = embedder.description["epoch"], embedder.description["epochs"]
        Reporter().say(f"{printable(use.run)} is not finished: this is its model after epoch {epoch} of {epochs}")
    return embedder


def refuse_options(use: ModelUse) -> None:
    """Raise an error if a command is asked to use an index in another way than it was made."""
    if use != ModelUse(use.run, use.device):
        raise UsageError(f"{printable(use.run)} is an index, which keeps the options it was made with: leave them out")


def refuse_among(images: ImageFolder, out: Path) -> None:
    """Raise an error if an output folder lies among the images, where what is put into it would count as images."""
    if images.members is None and out.resolve().is_relative_to(Path(images.root).resolve()):
        raise UsageError(
            f"the folder {printable(out)} lies among the photos, so its images would count as photos later: give an "
            f"--out outside of {printable(images.root)}"
        )


def whiten(embedder: Embedder, images: ImageFolder, allow_skipped: bool | None = None) -> Embedder:
    """The model half-whitened on these images, with progress; ``allow_skipped``: as for :func:`_embed_some`."""
    return embedder.whiten_by(_embed_some(embedder, images, allow_skipped))


def load_whitened(use: ModelUse, images: ImageFolder, kept: Path | None = None, by_default: bool = False) -> Embedder:
    """The model that a command is asked to use, whitened on these images if that is asked for.

    ``kept``: a folder that may keep the whitened model already: later images and queries need the same model.
    ``by_default``: an untrained model is whitened without being asked, unless the kept one is not.
    """
    embedder, wanted = load_model(use), use.whiten
    if not (by_default and _is_untrained(embedder) if wanted is None else wanted):
        return embedder
    known = Embedder.load(kept, use.device) if kept is not None and (kept / DESCRIPTION).is_file() else None
    if wanted is None and (len(images) < WHITENED_FROM if known is None else "whitened" not in known.description):
        return embedder
    if known is None:
        return _try_to_whiten(embedder, wanted, _embed_some(embedder, images))
    if known.description.get("whitened") != embedder.identity:
        raise UsageError(
            f"{printable(kept)} is of another model, or of another --size, --mirror, --scales or --whiten: "
            "give what it was made with, or another --out"
        )
    return known


def embed_whitened(
    embedder: Embedder, wanted: bool | None, images: ImageFolder, allow_skipped: bool
) -> tuple[Embedder, ImageFolder, Tensor, list[Skipped]]:
    """The model, the images that can be read, their vectors, and what cannot be read, which is printed too.

    ``wanted``: whiten the model on these images; None: if it is untrained and those that can be read are enough.
    """
    if not wants_whitening(embedder, wanted, images):
        return embedder, *embed_folder(embedder, images, allow_skipped)
    if embedder.description["head"] != "none" or embedder.mirror or embedder.scales > 1:
        whitened = _try_to_whiten(embedder, wanted, _embed_some(embedder, images))
        return whitened, *embed_folder(whitened, images, allow_skipped)
    images, features, skipped = embed_folder(embedder.raw, images, allow_skipped)  # one pass is enough
    whitened = _try_to_whiten(embedder, wanted, features[:: -(-len(features) // WHITENED_ON)])
    for rows in features.split(BATCH_SIZE):  # in place: all of them once more may not fit the memory
        rows.copy_(F.normalize(whitened.network.heads["f"](rows.to(embedder.device))))
    return whitened, images, features, skipped


def wants_whitening(embedder: Embedder, wanted: bool | None, images: ImageFolder) -> bool:
    """Whether vectors are to be whitened; ``wanted`` None: if the model is untrained and the images are enough."""
    return _is_untrained(embedder) and len(images) >= WHITENED_FROM if wanted is None else wanted


def _try_to_whiten(embedder: Embedder, wanted: bool | None, vectors: Tensor) -> Embedder:
    """The model whitened by these; if nobody asked for it (``wanted`` is None), by enough, if possible, and said."""
    if wanted:
        return embedder.whiten_by(vectors)
    if len(vectors) < WHITENED_FROM:
        return embedder
    with suppress(SelftaughtError):
        embedder = embedder.whiten_by(vectors)
        Reporter().say(UNASKED)
    return embedder


def _embed_some(embedder: Embedder, images: ImageFolder, allow_skipped: bool | None = None) -> Tensor:
    """The vectors to whiten a model by, of all images or of some that are evenly spaced; prints which cannot be read.

    ``allow_skipped``: None if all images are embedded afterwards, which prints them.
    """
    every = max(1, -(-len(images) // WHITENED_ON))
    _, vectors, _ = embed_folder(embedder.raw, images.only(images.files[::every]), allow_skipped, "whitening")
    return vectors


def _is_untrained(embedder: Embedder) -> bool:
    return bool(embedder.description["head"] == "none" and embedder.description["recipe"] == "none")


def embed_folder(
    embedder: Embedder, images: ImageFolder, allow_skipped: bool | None, doing: str = "embedding images"
) -> tuple[ImageFolder, Tensor, list[Skipped]]:
    """Embed all images that can be read; prints which cannot, unless ``allow_skipped`` is None."""
    reporter = Reporter()
    with reporter.work(doing, len(images)) as tell:
        vectors, failures = embedder.encoding.encode_files(images.paths(), tell)
    skipped = [Skipped(images.files[i], reason) for i, reason in failures]
    if allow_skipped is not None:
        report_skipped(images, skipped, allow_skipped, reporter)
    return images.without(skipped), vectors, skipped


def leave_out_folders(images: ImageFolder) -> ImageFolder:
    """The images without subfolders that cannot be read; prints which these are."""
    skipped = [Skipped(file, "the folder cannot be read") for file in images.files if file.endswith("/")]
    report_skipped(images, skipped, True, Reporter())
    return images.without(skipped)


def report_skipped(images: ImageFolder, skipped: Sequence[Skipped], allow: bool, reporter: Reporter) -> None:
    """Print which images were left out; raises an error if they are too many."""
    if skipped:
        check_skipped(images, skipped, allow=allow)
        tell_skipped(skipped, reporter)


def tell_skipped(skipped: Sequence[Skipped], reporter: Reporter) -> None:
    """Print which images were left out."""
    for entry in skipped[:10]:
        reporter.say(f"left out {printable(entry.path)}: {entry.reason}")
    if len(skipped) > 10:
        reporter.say(f"left out {counted(len(skipped) - 10, 'more image')} that cannot be read")
