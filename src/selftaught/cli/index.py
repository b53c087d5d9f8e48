"""selftaught index: make, add to, remove from, sync and push a searchable collection."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from selftaught.cli.options import AllowSkipped, Device, Images, ModelUse, WhitenUntrained, uses_model
from selftaught.errors import UsageError, counted, near_names, printable, suggest

MAKE = "make"


class MakeByDefault(TyperGroup):
    """``index RUN IMAGES …`` is ``index make RUN IMAGES …``."""

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        if words and words[0] not in self.commands and words[0] != "--help":
            if not any(word.startswith(("--out", "--help")) for word in words) and not Path(words[0]).exists():
                known = suggest(near_names(words[0], self.commands)) or f"choose from {', '.join(self.commands)}"
                raise UsageError(
                    f"{printable(words[0])!r} is no subcommand of index: {known} "
                    "(to make an index, name it: selftaught index RUN IMAGES --out INDEX)"
                )
            words = [MAKE, *words]
        return super().parse_args(context, words)


app = typer.Typer(
    cls=MakeByDefault,
    no_args_is_help=True,
    help="Make a collection for many searches, and change it.\n\nselftaught index RUN IMAGES --out INDEX makes one. "
    "It holds vectors, paths, thumbnails and the model, so that selftaught search INDEX QUERY needs nothing else. "
    "Needs the extra index.\n\nExample: selftaught index tf_efficientnet_lite0 photos --out photos.index",
)
Index = Annotated[Path, typer.Argument(help="An index folder written by selftaught index.", metavar="INDEX")]


@app.command(MAKE)
@uses_model(whiten=WhitenUntrained)
def make(
    use: ModelUse,
    images: Images,
    out: Annotated[Path, typer.Option(help="The index folder to write, or to continue.")],
    allow_skipped: AllowSkipped = False,
) -> None:
    """Make an index of a folder of images; this word may be left out.

    Each image goes through the network once, or twice to whiten: for 10,000 images, minutes on a CPU and seconds on a
    GPU.
    The same command continues where it was stopped.

    Example: selftaught index tf_efficientnet_lite0 photos --out photos.index
    """
    from selftaught.cli.model_use import load_whitened
    from selftaught.data import open_images
    from selftaught.index import MODEL, add_images, make_index

    found = open_images(images, "all", allow_skipped=allow_skipped)  # before a folder is made
    index = make_index(out, load_whitened(use, found, out / MODEL, by_default=True))
    _tell(index, add_images(index, images, allow_skipped=allow_skipped))
    print(f"Next: selftaught search {shlex.quote(printable(out))} QUERY.jpg")


@app.command()
def add(index: Index, images: Images, device: Device = "auto", allow_skipped: AllowSkipped = False) -> None:
    """Add the images of a folder that are new or have changed. Only those are embedded.

    Example: selftaught index add photos.index more-photos
    """
    from selftaught.index import add_images, open_index

    opened = open_index(index, device)
    _tell(opened, add_images(opened, images, allow_skipped=allow_skipped))


@app.command()
def remove(
    index: Index, paths: Annotated[list[Path], typer.Argument(help="Images, or folders of them.", metavar="PATH")]
) -> None:
    """Take images out of the index. Their files stay.

    index sync adds them again, unless all images of the folder that was indexed are removed.

    Example: selftaught index remove photos.index photos/old
    """
    from selftaught.files import plain_path
    from selftaught.index import is_below, open_table, remove_images

    table = open_table(index)
    _tell(table, remove_images(table, paths))
    if any(path.exists() and is_below(str(plain_path(path)), root) for path in paths for root in table.roots()):
        print("Their files are still there: selftaught index sync would add them again.")


@app.command()
def sync(
    index: Index,
    images: Annotated[
        str | None, typer.Argument(help="The folder to follow. (default: each folder in the index)", metavar="IMAGES")
    ] = None,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Make the index equal to a folder: add, embed again, remove. Only new and changed images are embedded.

    An image that was removed from the index, but is still in the folder, comes back.

    Example: selftaught index sync photos.index
    """
    from selftaught.index import open_index, sync_images

    opened = open_index(index, device)
    _tell(opened, sync_images(opened, images, allow_skipped=allow_skipped))


@app.command()
def push(
    index: Index,
    target: Annotated[
        str,
        typer.Argument(
            help="The server and the collection. A key is read from QDRANT_API_KEY.", metavar="qdrant://HOST:6333/NAME"
        ),
    ],
) -> None:
    """Copy the index to a Qdrant server. Its collection then holds exactly what the index holds.

    Needs the extra qdrant.

    Example: selftaught index push photos.index qdrant://HOST:6333/photos
    """
    from selftaught.console import Reporter
    from selftaught.index import open_table, parse_target, push_index

    place, table = parse_target(target), open_table(index)
    with Reporter().work("pushing images", len(table)) as tell:
        count = push_index(table, place, tell)
    images = counted(count, "image is", "images are")
    print(f"{images} in the collection {printable(place.collection)} at {printable(place.url)}")


def _tell(index: Any, change: Any) -> None:
    """Print what was left out and done, and what the index holds now."""
    from selftaught.cli.model_use import tell_skipped
    from selftaught.console import Reporter

    tell_skipped(change.skipped, Reporter())
    written = f"{counted(change.written, 'image')} written"
    print(f"{written}, {change.removed:,} removed; {len(index):,} in {printable(index.folder)}")
