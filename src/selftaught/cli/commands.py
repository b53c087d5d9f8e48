"""The commands: those around training, thin, and the list of all. What takes seconds to import is imported by them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from selftaught import __version__
from selftaught.cli.cache import app as cache_app
from selftaught.cli.data import app as data_app
from selftaught.cli.index import app as index_app
from selftaught.cli.model_commands import cluster, dedup, embed, evaluate, explore, export, search, share
from selftaught.cli.options import AllowSkipped, Device, Images, Seed
from selftaught.cli.train import train

SECTIONS = {
    "First, without training": ("explore", "dedup", "cluster", "search"),
    "Train, and measure": ("advise", "train", "evaluate", "report"),
    "Use a model": ("index", "embed", "export", "share"),
    "Demo, paper, cache": ("demo", "reproduce", "figures", "data", "cache"),
}


class ByTask(TyperGroup):
    """The commands by what they are for, in the order in which a new user needs them."""

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        for task, names in SECTIONS.items():
            with formatter.section(task):
                formatter.write_dl([(f"{name:9}", self.commands[name].get_short_help_str(80)) for name in names])


app = typer.Typer(
    name="selftaught",
    cls=ByTask,
    help="Turn a folder of unlabeled images into an embedding model, in which near means the same thing.\n\nStart with:"
    "\n\n\b\nselftaught explore tf_efficientnet_lite0 PHOTOS  look around, without training"
    "\nselftaught train PHOTOS --out RUN                learn from the photos"
    "\nselftaught search RUN QUERY.jpg --in PHOTOS      find photos like this one",
    no_args_is_help=True,
    epilog="selftaught COMMAND --help describes each. Exit codes: 0 done, 1 failed, 2 misuse, 130 interrupted.",
    add_completion=False,
    rich_markup_mode=None,
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


def report(
    run: Annotated[Path, typer.Argument(help="A folder written by selftaught train.", metavar="RUN")],
    images: Annotated[
        str | None,
        typer.Argument(help="The photos to show. (default: those of --eval, or else of training)", metavar="IMAGES"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The page to write. (default: RUN/report.html)")] = None,
    device: Device = "auto",
) -> None:
    """Make a run's page again. Verdict, curves, neighbors before and after training, a map, what to do next.

    Takes about a minute.

    Example: selftaught report run new-photos --out new-photos.html
    """
    from selftaught.cli.report import report as write

    write(run, images, out, device)


def advise(
    images: Images,
    backbone: Annotated[str, typer.Option(help="The network that training would start from.")] = "auto",
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Describe a folder before training, and recommend settings. With reasons, and the time training would take.

    Looks at the images and times a few steps of training; trains and writes no run.

    Example: selftaught advise photos
    """
    from selftaught.cli.advise import advise_on

    advise_on(images, backbone, device, allow_skipped)


def demo(
    out: Annotated[Path, typer.Option(help="Where to put everything; must be new or empty.")] = Path("demo"),
    seed: Seed = 0,
) -> None:
    """Train on drawn product photos, and show what was learned. Needs no data; a few minutes on a CPU.

    Example: selftaught demo --out demo
    """
    from selftaught.cli.demo import demo as show

    show(out, seed)


def figures(
    run: Annotated[Path, typer.Argument(help="A run that was trained with --snapshots.", metavar="RUN")],
    data: Annotated[
        str, typer.Argument(help="Class folders, or a data set such as cub:/data/CUB_200_2011.", metavar="LABELED")
    ],
    out: Annotated[Path | None, typer.Option(help="The folder to write into. (default: RUN/figures)")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    allow_skipped: AllowSkipped = False,
) -> None:
    """Draw the paper's figures, each with its numbers as CSV. Minutes. t-SNE needs the extra research.

    Example: selftaught figures run labeled
    """
    from selftaught.console import Reporter
    from selftaught.data import open_images
    from selftaught.devices import choose_device
    from selftaught.errors import UsageError, printable
    from selftaught.reproduce import draw_figures

    if not run.is_dir():
        raise UsageError(f"there is no run {printable(run)}")
    images = open_images(data, "test", allow_skipped=allow_skipped)
    target, place = out or run / "figures", choose_device(device)
    written, left_out = draw_figures(
        run, images, target, place, seed=seed, allow_skipped=allow_skipped, reporter=Reporter()
    )
    print("\n".join([*map(printable, written), *left_out]))


def reproduce(
    table: Annotated[
        str,
        typer.Argument(help="table1, scratch, ablation, ssl, semi, sensitivity, methods or shares.", metavar="TABLE"),
    ],
    rows: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this row, named as in --plan; repeated, or with commas. (default: all)", metavar="NAME"
        ),
    ] = None,
    data: Annotated[
        Path,
        typer.Option(
            help="The folder with the data sets, and with weights/googlenet.npz, weights/bn_inception.pth and "
            "weights/swav_resnet50.pth (or other kinds of files). For methods, shares: a folder with train/ and test/."
        ),
    ] = Path("data"),
    out: Annotated[
        Path | None, typer.Option(help="The folder of runs and results, new or resumed. (default: reproduced/TABLE)")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each row, with seeds from 0 on.", min=1)] = 1,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.", min=1)] = None,
    backbone: Annotated[str | None, typer.Option(help="One backbone for all rows, instead of their own.")] = None,
    device: Device = "auto",
    quick: Annotated[
        bool, typer.Option("--quick", help="The whole table on drawn photos with a small network: minutes a row.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what would be run, and for how long.")] = False,
) -> None:
    """Run a table of the paper, and compare our results with it.

    First prints a plan with the time it will take: minutes for each row with --quick, hours to days without.
    The same command continues where it was stopped. A finished run keeps its model and not its checkpoint.

    Example: selftaught reproduce ablation --quick
    """
    from selftaught.reproduce import reproduce_table

    reproduce_table(table, rows or [], data, out, seeds, epochs, backbone, device, quick, plan)


COMMANDS = (report, evaluate, embed, search, export, dedup, cluster, advise, explore, share, demo, figures, reproduce)
for command in (train, *COMMANDS):
    app.command()(command)
