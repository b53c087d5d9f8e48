"""The commands that use a model, thin. Modules that take seconds to import are imported when a command runs."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from selftaught.cli.options import AllowSkipped, Images, Labels, Level, ModelUse, WhitenUntrained, uses_model


@uses_model(whiten=WhitenUntrained)
def evaluate(
    use: ModelUse,
    labeled: Annotated[
        str, typer.Argument(help="Class folders, or a data set's test split: cub:ROOT.", metavar="LABELED")
    ],
    json: Annotated[
        Path | None, typer.Option(help="Also write the scores to this file; - prints them instead.")
    ] = None,
    level: Level = None,
    labels: Labels = None,
    floor: Annotated[
        bool,
        typer.Option(
            help="Also measure without training, which the run must beat: the untrained model that it has kept, "
            "and the plain pretrained backbone, if its weights are on this disk. Up to 3 times the time."
        ),
    ] = True,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Measure a model on labeled images. Recall@k, MAP@R, R-Precision, with and without training.

    Each image goes through three models (--no-floor: one): for 10,000 images, minutes on a CPU.

    Example: selftaught evaluate run labeled
    """
    from selftaught.cli.evaluate import evaluate as measure

    measure(use, labeled, json, level, labels, floor, allow_skipped)


@uses_model()
def embed(
    use: ModelUse,
    images: Images,
    out: Annotated[Path, typer.Option(help="The file: vectors.parquet, or vectors.npy, with paths in vectors.json.")],
    shard: Annotated[
        str | None,
        typer.Option(
            help="Embed only part I of N, such as 2/8, into vectors.2-of-8.npy: each machine one part, in any order. "
            "All parts together are read as vectors.npy. torchrun gives each of its processes such a part.",
            metavar="I/N",
        ),
    ] = None,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Write the embeddings of all images in a folder.

    Each image goes through the network once: for 10,000 images, minutes on a CPU and seconds on a GPU.
    The same command continues where it was stopped, and later embeds only what is new or has changed.

    Example: selftaught embed run photos --out vectors.parquet
    """
    from selftaught.cli.embed import embed as write

    write(use, images, out, shard, allow_skipped)


@uses_model(
    run=Annotated[str, typer.Argument(help="An index; or a run or a backbone's name, with --in.", metavar="INDEX|RUN")],
    whiten=WhitenUntrained,
)
def search(
    use: ModelUse,
    queries: Annotated[list[Path], typer.Argument(help="Images to look for, or folders of them.", metavar="QUERY")],
    within: Annotated[
        str | None,
        typer.Option("--in", help="Without an index: a folder of images, or a file written by selftaught embed."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbors to show of each query.", min=1)] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The contact sheet, a picture of the results. (default: search.png, unless --json or --csv is given)"
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file; - prints them.")] = None,
    csv: Annotated[Path | None, typer.Option(help="The same as CSV, one line per neighbor.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where the photos are now, if their folder has moved.", metavar="FOLDER")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare every vector, even in an index with approximate search.")
    ] = False,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find the images nearest to some queries. Prints them, and shows them in one picture.

    With an index, a search takes seconds. Without one, all images of --in are embedded first.

    Distances are Euclidean. Where vectors have length 1, as those of most models, the cosine is 1 - distance² / 2.
    "Closer than 97% of neighbors": 97% of the distances between images of the collection and their own ten
    nearest are larger.

    Example: selftaught search tf_efficientnet_lite0 query.jpg --in photos
    """
    from selftaught.cli.search import Output
    from selftaught.cli.search import search as find

    sheet = out or (Path("search.png") if json is None and csv is None else None)
    find(use, queries, within, k, Output(sheet, json, csv), root, exact, allow_skipped)


@uses_model(device=None)
def export(
    use: ModelUse,
    images: Annotated[
        str | None,
        typer.Argument(
            help="Images for the check, which takes up to 16, and for --whiten. (default: drawn ones)",
            metavar="IMAGES",
        ),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX file, such as model.onnx.", metavar="FILE")] = None,
    program: Annotated[
        Path | None, typer.Option("--torch", help="Write a torch.export program, such as model.pt2.", metavar="FILE")
    ] = None,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Write a model as a file for other programs. Images of any size in, vectors out, preprocessing inside.

    Takes a minute. The file is checked against the model before it is written. ONNX needs the extra onnx.

    Example: selftaught export run --onnx model.onnx
    """
    from selftaught.cli.export import export_model

    export_model(replace(use, device="cpu"), images, onnx, program, allow_skipped)


@uses_model()
def dedup(
    use: ModelUse,
    images: Images,
    out: Annotated[
        Path,
        typer.Option(
            help="The folder for the page and the table; new or empty, not among the images.", metavar="FOLDER"
        ),
    ] = Path("duplicates"),
    threshold: Annotated[
        float | None,
        typer.Option(help="The distance up to which photos count as copies. (default: proposed from the distances)"),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            help="Also write a shell script that moves all copies but the best of each group.", metavar="FILE"
        ),
    ] = None,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find copies: equal files, equal pixels, nearly the same. Writes a page and a table; nothing is deleted or moved.

    Each image goes through the network once: for 10,000 images, minutes on a CPU and seconds on a GPU.

    Example: selftaught dedup tf_efficientnet_lite0 photos
    """
    from selftaught.cli.dedup import dedup as find

    find(use, images, out, threshold, script, allow_skipped)


@uses_model(whiten=WhitenUntrained)
def cluster(
    use: ModelUse,
    images: Images,
    out: Annotated[
        Path,
        typer.Option(help="The folder for page and tables; new or empty, not among the images.", metavar="FOLDER"),
    ] = Path("groups"),
    smallest: Annotated[int, typer.Option(help="The fewest photos in a group.", min=2)] = 5,
    names: Annotated[
        Path | None,
        typer.Option(
            help="Sort photos into the named groups of this groups.csv, instead of finding new groups.", metavar="CSV"
        ),
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Also make a folder of links to each group's photos.")] = False,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Group photos, without a given number of groups. Name them on a page; --names finds them in new photos.

    Each image goes through the network once: for 10,000 images, minutes on a CPU and seconds on a GPU.
    Needs the extra groups.

    Example: selftaught cluster tf_efficientnet_lite0 photos
    """
    from selftaught.cli.cluster import cluster as group

    group(use, images, out, smallest, names, links, allow_skipped)


@uses_model(
    run=Annotated[
        str, typer.Argument(help="A run, a backbone's name, or an index, which opens at once.", metavar="RUN|INDEX")
    ],
    whiten=WhitenUntrained,
)
def explore(
    use: ModelUse,
    images: Annotated[
        str | None,
        typer.Argument(help="A folder of images, or tar shards. With an index: their new folder.", metavar="IMAGES"),
    ] = None,
    before: Annotated[
        bool,
        typer.Option("--before", help="Also make a map with the untrained model that the run must beat, to compare."),
    ] = False,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Also make a map with each network that train --snapshots has kept.")
    ] = False,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 0,
    selections: Annotated[Path, typer.Option(help="Where folders of links to selected photos are made.")] = Path(
        "selections"
    ),
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Look around in a collection, on a local page. A map of all photos, their neighbors, and selections.

    Runs until Ctrl-C. An index opens at once; otherwise all images are embedded first. Needs the extra explore.

    Example: selftaught explore tf_efficientnet_lite0 photos --open
    """
    from selftaught.cli.explore import explore as show

    show(use, images, before, snapshots, port, selections, browser, allow_skipped)


@uses_model(device=None, whiten=None)
def share(
    use: ModelUse,
    out: Annotated[Path | None, typer.Option(help="Write the folder to share here.", metavar="FOLDER")] = None,
    push: Annotated[
        str | None, typer.Option(help="Instead, put it on the model hub under this name.", metavar="USER/NAME")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: visible to all, not private.")] = False,
    license: Annotated[  # noqa: A002
        str | None, typer.Option(help="For the model card, as the hub names it: apache-2.0, cc-by-4.0, …", metavar="ID")
    ] = None,
) -> None:
    """Share a model with its card: as a folder, or on the model hub. Takes seconds.

    timm, transformers and sentence-transformers can load most such folders; the command says whether they can.

    Example: selftaught share run --out folder --license apache-2.0
    """
    from selftaught.cli.share import share as give

    give(replace(use, device="cpu"), out, push, public, license)
