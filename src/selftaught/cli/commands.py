"""The commands, thin. Modules that take seconds to import are imported when a command runs."""

from pathlib import Path
from typing import Annotated

import typer

from selftaught import __version__
from selftaught.cli.cache import app as cache_app
from selftaught.cli.data import app as data_app
from selftaught.cli.index import app as index_app
from selftaught.cli.options import (
    AllowSkipped,
    Device,
    Images,
    Labels,
    Level,
    Mirror,
    ModelUse,
    Run,
    Scales,
    Seed,
    Size,
    Whiten,
)
from selftaught.cli.train import TrainCommand, train

app = typer.Typer(
    name="selftaught",
    help="Turn a folder of unlabeled images into an embedding model, in which near means the same thing.",
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 failed, 2 misuse, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(cache_app, name="cache")
app.add_typer(index_app, name="index")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"selftaught {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command(cls=TrainCommand)(train)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A folder written by selftaught train.")],
    images: Annotated[
        str | None,
        typer.Argument(
            help="The photos to show. (default: those of --eval if the run had any, or else those trained on)"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page to write. (default: RUN/report.html)")] = None,
    device: Device = "auto",
) -> None:
    """Make a run's page again: verdict, curves, neighbors before and after training, a map, what to do next."""
    from selftaught.cli.report import report as write

    write(run, images, out, device)


@app.command()
def evaluate(
    run: Run,
    labeled: Annotated[
        str,
        typer.Argument(
            help="Images in class folders; the folder's name is the label. Or a data set's test split: cub:ROOT."
        ),
    ],
    json: Annotated[
        Path | None, typer.Option(help="Also write the scores to this file; - prints them instead.")
    ] = None,
    level: Level = None,
    labels: Labels = None,
    floor: Annotated[
        bool,
        typer.Option(
            help="Measure the plain pretrained backbone beside the model, if its weights are on this disk: "
            "twice the time."
        ),
    ] = True,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    whiten: Whiten = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Measure a model on labeled images: Recall@k, MAP@R, R-Precision."""
    from selftaught.cli.model_commands import evaluate as measure

    use = ModelUse(run, device, size, mirror, scales, whiten)
    measure(use, labeled, json, floor=floor, level=level, labels=labels, allow_skipped=allow_skipped)


@app.command()
def embed(
    run: Run,
    images: Images,
    out: Annotated[Path, typer.Option(help="vectors.parquet, or vectors.npy with the paths in vectors.json.")],
    shard: Annotated[
        str | None,
        typer.Option(
            help="Only one part of the images, such as 2/8, into vectors.2-of-8.npy: one machine each, in any order. "
            "All parts together are read as vectors.npy. torchrun gives each of its processes such a part.",
            metavar="I/N",
        ),
    ] = None,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    whiten: Whiten = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Write the embeddings of all images in a folder.

    The same command goes on where it was stopped, and later embeds only what is new or has changed.
    """
    from selftaught.cli.embed import embed as write

    write(ModelUse(run, device, size, mirror, scales, whiten), images, out, shard, allow_skipped)


@app.command()
def search(
    what: Annotated[
        str,
        typer.Argument(
            help="An index written by selftaught index; or a run or a backbone's name, with --in.", metavar="INDEX|RUN"
        ),
    ],
    queries: Annotated[list[Path], typer.Argument(help="Images to look for, or folders of them.", metavar="QUERY...")],
    within: Annotated[
        str | None,
        typer.Option("--in", help="Without an index: a folder of images, or a file written by selftaught embed."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbors to show of each query.", min=1)] = 10,
    out: Annotated[
        Path | None,
        typer.Option(help="The contact sheet to write. (default: search.png, unless --json or --csv is given)"),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the results to this file; - prints them.")] = None,
    csv: Annotated[Path | None, typer.Option(help="The same as CSV, one line per neighbor.")] = None,
    root: Annotated[
        Path | None, typer.Option(help="Where the photos are now, if their folder has moved.", metavar="FOLDER")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Compare every vector, even in an index with approximate search.")
    ] = False,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    whiten: Whiten = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find the images nearest to some queries, and show them on a contact sheet.

    "Closer than 97 % of neighbors" compares a distance with those between the collection's images and their own
    ten nearest.
    """
    from selftaught.cli.search import Output
    from selftaught.cli.search import search as find

    sheet = out or (Path("search.png") if json is None and csv is None else None)
    find(
        ModelUse(what, device, size, mirror, scales, whiten),
        queries,
        within,
        k,
        Output(sheet, json, csv),
        root=root,
        exact=exact,
        allow_skipped=allow_skipped,
    )


@app.command()
def export(
    run: Run,
    images: Annotated[
        str | None,
        typer.Argument(
            help="Images to whiten on, and to check the result with, for which 16 are used. (default: drawn ones)"
        ),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX file, such as model.onnx.", metavar="FILE")] = None,
    program: Annotated[
        Path | None,
        typer.Option("--torch", help="Write a program of torch.export, such as model.pt2.", metavar="FILE"),
    ] = None,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    whiten: Whiten = False,
) -> None:
    """Write a model for other programs: uint8 images of any size in, vectors out, preprocessing inside."""
    from selftaught.cli.export import export_model

    export_model(ModelUse(run, "cpu", size, mirror, scales, whiten), images, onnx, program)


@app.command()
def dedup(
    run: Run,
    images: Images,
    out: Annotated[
        Path, typer.Option(help="The folder for the page and the table; must be new or empty.", metavar="FOLDER")
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
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    whiten: Whiten = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find copies: equal files, equal pixels, nearly the same. A page, a table; nothing is deleted or moved."""
    from selftaught.cli.dedup import dedup as find

    find(ModelUse(run, device, size, mirror, scales, whiten), images, out, threshold, script, allow_skipped)


@app.command()
def cluster(
    run: Run,
    images: Images,
    out: Annotated[
        Path, typer.Option(help="The folder for page and tables; must be new or empty.", metavar="FOLDER")
    ] = Path("groups"),
    smallest: Annotated[int, typer.Option(help="The fewest photos in a group.", min=2)] = 5,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="Compare half-whitened vectors: finer differences count more.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(help="Find the groups of this groups.csv, with its names, instead of new ones.", metavar="CSV"),
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Also make a folder of links to each group's photos.")] = False,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Group photos, without a given number of groups; name the groups on a page; find them again in new photos."""
    from selftaught.cli.cluster import cluster as group

    use = ModelUse(run, device, size, mirror, scales, whiten)
    group(use, images, out, smallest, names, links, allow_skipped)


@app.command()
def advise(
    images: Images,
    backbone: Annotated[str, typer.Option(help="The network that training would start from.")] = "auto",
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Before training: unreadable files, copies, photos per thing; settings with reasons, and the time they take."""
    from selftaught.cli.advise import advise_on

    advise_on(images, backbone, device, allow_skipped)


@app.command()
def explore(
    what: Annotated[
        Path, typer.Argument(help="A run, a backbone's name, or an index, which opens at once.", metavar="RUN|INDEX")
    ],
    images: Annotated[
        str | None,
        typer.Argument(help="A folder of images, or tar shards. With an index: where its photos are, if they moved."),
    ] = None,
    before: Annotated[
        bool,
        typer.Option("--before", help="Also embed with the backbone as it was before training, to switch between."),
    ] = False,
    snapshots: Annotated[
        bool, typer.Option("--snapshots", help="Also embed with the networks of each epoch that training has kept.")
    ] = False,
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 0,
    selections: Annotated[Path, typer.Option(help="Where folders of links to selected photos are made.")] = Path(
        "selections"
    ),
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Look around in a collection: a local page with a map of all photos, their neighbors, and selections."""
    from selftaught.cli.explore import explore as show

    show(
        what,
        images,
        before=before,
        snapshots=snapshots,
        port=port,
        selections=selections,
        browser=browser,
        device=device,
        allow_skipped=allow_skipped,
    )


@app.command()
def share(
    run: Run,
    out: Annotated[Path | None, typer.Option(help="Write the folder to share here.", metavar="FOLDER")] = None,
    push: Annotated[
        str | None, typer.Option(help="Instead, put it on the model hub under this name.", metavar="USER/NAME")
    ] = None,
    public: Annotated[bool, typer.Option("--public", help="With --push: for everyone to see.")] = False,
    license: Annotated[  # noqa: A002
        str | None, typer.Option(help="For the model card, as the hub names it: apache-2.0, cc-by-4.0, …", metavar="ID")
    ] = None,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
) -> None:
    """Write a model with its card to share, also for timm and other libraries, or put it on the model hub."""
    from selftaught.cli.share import share as write

    write(ModelUse(run, "cpu", size, mirror, scales), out, push, public, license)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put everything; must be new or empty.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Train on drawn product photos that come with selftaught, and show what was learned. A few minutes on a CPU."""
    from selftaught.cli.demo import demo as show

    show(out, seed)


@app.command()
def figures(
    run: Annotated[Path, typer.Argument(help="A folder written by selftaught train with --snapshots.")],
    data: Annotated[
        str, typer.Argument(help="Labeled images: class folders, or a benchmark such as cub:/data/CUB_200_2011.")
    ],
    out: Annotated[Path | None, typer.Option(help="The folder to write into. (default: RUN/figures)")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Draw the paper's figures from a run that was trained with --snapshots, each with its numbers as CSV."""
    from selftaught.cli.figures import figures as draw

    draw(run, data, out, device, seed, allow_skipped)


@app.command()
def reproduce(
    table: Annotated[
        str, typer.Argument(help="table1, scratch, ablation, ssl, semi, sensitivity, or of our own: methods, shares.")
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(help="Only this row; may be given several times, or with commas. (default: all)", metavar="NAME"),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="The folder with the data sets, and with weights/googlenet.npz, weights/bn_inception.pth and "
            "weights/swav_resnet50.pth (each may be another kind of file). For methods: one with train/ and test/."
        ),
    ] = Path("data"),
    out: Annotated[
        Path | None, typer.Option(help="The folder of runs and results, new or resumed. (default: reproduced/TABLE)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row, with seeds from 0 on.", min=1)] = 1,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.", min=1)] = None,
    backbone: Annotated[str | None, typer.Option(help="One for all rows, instead of their own.")] = None,
    device: Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="The whole table on drawn photos with a small network, in minutes.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be run, and for how long.")] = False,
) -> None:
    """Run a table of the paper and put the results beside its numbers.

    The same command goes on where it was stopped. A finished run keeps its model and not its checkpoint.
    """
    from selftaught.cli.reproduce import reproduce as run

    run(table, rows or [], data, out, seeds, epochs, backbone, device, quick, plan)
