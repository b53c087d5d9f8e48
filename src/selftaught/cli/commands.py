"""The commands, thin. What takes seconds to import is imported when a command runs."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from selftaught import __version__
from selftaught.cli.cache import app as cache_app
from selftaught.cli.data import app as data_app
from selftaught.cli.index import app as index_app
from selftaught.cli.options import AllowSkipped, Device, Labels, Level, Mirror, ModelUse, Run, Scales, Size, Whiten

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


class _TrainCommand(TyperCommand):
    """Its help names the settings of all methods, those of other packages included."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from selftaught.learners import describe_settings

        setting = next(option for option in self.params if "--set" in option.opts)
        setting.help = f"Any other setting, such as --set sigma=2: {describe_settings()}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


@app.command(cls=_TrainCommand)
def train(
    images: Annotated[
        str | None,
        typer.Argument(
            help="A folder of images, however nested; labels are not needed. "
            "Or a data set of the paper, such as cub:/data/CUB_200_2011, or tar shards: 'shards/{000..127}.tar'."
        ),
    ] = None,
    labeled: Annotated[
        str | None,
        typer.Option(help="Semi-supervised, instead of IMAGES: class folders to begin with.", metavar="FOLDER"),
    ] = None,
    unlabeled: Annotated[
        str | None, typer.Option(help="Semi-supervised: more images, without labels.", metavar="FOLDER")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to write: model, settings, metrics, curves.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder instead.", metavar="RUN")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="best (what was found best on photos), official (as the authors ran it), paper (as the text has it), "
            "sop (few photos of a thing), scratch, semi (for --labeled). (default: best, or semi)"
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="stml; for comparison moco, byol, msf, nce, isif, deepcluster, udml-ss; with class folders as labels "
            "contrastive, multi-similarity, proxy-anchor; slade (for --labeled). (default: stml)"
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="auto, small, googlenet, bn_inception, torchvision.NAME, or any timm name. "
            "(default: auto, a pretrained ResNet50)"
        ),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="auto (pretrained), none, or a .safetensors, .pth or .npz file. (default: auto)")
    ] = None,
    trained: Annotated[
        str | None,
        typer.Option(
            "--train",
            help="all, or heads: the backbone stays as it is, and only the last layer learns, which takes minutes "
            "without a GPU. (default: all)",
            metavar="PART",
        ),
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Size of the embedding. (default: 512)")] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the images. (default: up to 30, fewer without a GPU)")
    ] = None,
    use_size: Annotated[
        int | None,
        typer.Option(
            help="Pixels at which the finished model sees images; time goes with its square. "
            "(default: 9/7 of the crop it is trained with, 288 for 224)"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images in a batch, each seen in two views. (default: 120, fewer for small folders)"),
    ] = None,
    neighbors: Annotated[
        int | None, typer.Option(help="Images per query in a batch, the query included. (default: 5)")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate of the backbone. (default: 0.0001)")] = None,
    seed: Annotated[int | None, typer.Option(help="Equal seeds give equal runs on a CPU. (default: 0)")] = None,
    device: Annotated[
        str | None, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps. (default: auto)")
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            "--eval", help="Class folders to measure on after every epoch; never trained on.", metavar="LABELED"
        ),
    ] = None,
    snapshots: Annotated[
        int | None,
        typer.Option(help="Keep the networks every so many epochs, for selftaught figures. (default: none)"),
    ] = None,
    allow_skipped: AllowSkipped = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to RUN/tensorboard.")] = False,
    other: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, such as --set sigma=2.", metavar="NAME=VALUE"),
    ] = None,
) -> None:
    """Train an embedding model on a folder of images, without labels.

    With --labeled and --unlabeled: first with the labels, then on all images without them.
    """
    from selftaught.learners import parse_settings
    from selftaught.training import train as run

    options: dict[str, Any] = {
        "method": method,
        "snapshots": snapshots,
        "backbone": backbone,
        "weights": weights,
        "train": trained,
        "dim": dim,
        "epochs": epochs,
        "use_size": use_size,
        "batch_size": batch_size,
        "neighbors": neighbors,
        "lr": lr,
        "seed": seed,
        "device": device,
    }
    changes = parse_settings(other or [], method) | {
        name: value for name, value in options.items() if value is not None
    }
    run(
        images,
        labeled=labeled,
        unlabeled=unlabeled,
        out=out,
        resume=resume,
        recipe=recipe,
        eval=evaluate,
        allow_skipped=allow_skipped,
        tensorboard=tensorboard,
        **changes,
    )


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
    images: Annotated[str, typer.Argument(help="A folder of images, however nested, or tar shards.")],
    out: Annotated[Path, typer.Option(help="vectors.parquet, or vectors.npy with the paths in vectors.json.")],
    shard: Annotated[
        str | None,
        typer.Option(
            help="Only one part of the images, such as 2/8, into vectors.2-of-8.npy: one machine each, in any order. "
            "All parts together are read as vectors.npy.",
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
        bool, typer.Option("--exact", help="Look at every vector, also in an index with approximate search.")
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
        typer.Argument(help="Images to check the result with; 16 of them are taken. (default: drawn ones)"),
    ] = None,
    onnx: Annotated[Path | None, typer.Option(help="Write an ONNX file, such as model.onnx.", metavar="FILE")] = None,
    program: Annotated[
        Path | None,
        typer.Option("--torch", help="Write a program of torch.export, such as model.pt2.", metavar="FILE"),
    ] = None,
    size: Size = None,
    mirror: Mirror = False,
    scales: Scales = None,
) -> None:
    """Write a model for other programs: uint8 images of any size in, vectors out, preprocessing inside."""
    from selftaught.cli.export import export_model

    export_model(ModelUse(run, "cpu", size, mirror, scales), images, onnx, program)


@app.command()
def dedup(
    run: Run,
    images: Annotated[str, typer.Argument(help="A folder of images, however nested, or tar shards.")],
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
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find copies: equal files, equal pixels, nearly the same. A page, a table; nothing is deleted or moved."""
    from selftaught.cli.dedup import dedup as find

    find(run, images, out, threshold, script, device, allow_skipped)


@app.command()
def cluster(
    run: Run,
    images: Annotated[str, typer.Argument(help="A folder of images, however nested, or tar shards.")],
    out: Annotated[
        Path, typer.Option(help="The folder for page and tables; must be new or empty.", metavar="FOLDER")
    ] = Path("groups"),
    smallest: Annotated[int, typer.Option(help="Photos that a group has at least.", min=2)] = 5,
    whiten: Annotated[
        bool, typer.Option("--whiten", help="Compare half-whitened vectors: finer differences count more.")
    ] = False,
    names: Annotated[
        Path | None,
        typer.Option(help="Find the groups of this groups.csv, with its names, instead of new ones.", metavar="CSV"),
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Also make a folder of links to each group's photos.")] = False,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Group photos, without a given number of groups; name the groups on a page; find them again in new photos."""
    from selftaught.cli.cluster import cluster as group

    group(run, images, out, smallest, whiten, names, links, device, allow_skipped)


@app.command()
def advise(
    images: Annotated[str, typer.Argument(help="A folder of images, however nested, or tar shards.")],
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
        Path, typer.Argument(help="A run, a backbone's name, or an index, which is there at once.", metavar="RUN|INDEX")
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
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 0,
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
    """Write a model with its card for others, who can load it with timm and others too, or put it on the model hub."""
    from selftaught.cli.share import share as write

    write(ModelUse(run, "cpu", size, mirror, scales), out, push, public, license)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put everything; must be new or empty.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the network and the training.", min=0, max=2**63 - 1)] = 0,
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
    seed: Annotated[int, typer.Option(help="Seed of the batches and the random views.", min=0, max=2**63 - 1)] = 0,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Draw the paper's figures from a run that was trained with --snapshots, each with its numbers as CSV."""
    from selftaught.cli.figures import figures as draw

    draw(run, data, out, device, seed, allow_skipped)


@app.command()
def reproduce(
    table: Annotated[
        str, typer.Argument(help="table1, scratch, ablation, ssl, semi, sensitivity, or methods (our own comparison).")
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
        Path | None, typer.Option(help="Where runs and results go, and go on. (default: reproduced/TABLE)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row, with seeds from 0 on.", min=1)] = 1,
    epochs: Annotated[int | None, typer.Option(help="Instead of the recipe's.", min=1)] = None,
    backbone: Annotated[str | None, typer.Option(help="Instead of each row's own.")] = None,
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
