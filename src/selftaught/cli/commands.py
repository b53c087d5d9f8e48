"""The commands, thin. What takes seconds to import is imported when a command runs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from selftaught import __version__

app = typer.Typer(
    name="selftaught",
    help="Turn a folder of unlabeled images into an embedding model, in which near means the same thing.",
    no_args_is_help=True,
    epilog="Exit codes: 0 done, 1 failed, 2 misuse, 130 interrupted.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


OTHERS = (
    "head_lr, weight_decay, schedule, sigma, delta, momentum, teacher_update, reduction, include_self, group_views, "
    "batches, similarity, distill, freeze_batch_norm, crop_scale, precision, workers"
)
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")]
AllowSkipped = Annotated[bool, typer.Option("--allow-skipped", help="Go on if over 5 % of the images are unreadable.")]
Run = Annotated[Path, typer.Argument(help="A run folder written by selftaught train.")]


@app.command()
def train(
    images: Annotated[
        Path | None, typer.Argument(help="A folder of images, however nested. Labels are not needed.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to write: model, settings, metrics, curves.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder instead.", metavar="RUN")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="official (as the authors ran it), paper (as the text has it), sop (few photos of a thing) or scratch."
            " (default: official)"
        ),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="auto, small, or any timm name. (default: auto, a pretrained ResNet50)")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="auto (pretrained), none, or a .safetensors or .pth file. (default: auto)")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Size of the embedding. (default: 512)")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the images. (default: 90)")] = None,
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
        Path | None,
        typer.Option(
            "--eval", help="Class folders to measure on after every epoch; never trained on.", metavar="LABELED"
        ),
    ] = None,
    allow_skipped: AllowSkipped = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to RUN/tensorboard.")] = False,
    other: Annotated[
        list[str] | None,
        typer.Option("--set", help=f"Any other setting, such as --set sigma=2: {OTHERS}.", metavar="NAME=VALUE"),
    ] = None,
) -> None:
    """Train an embedding model on a folder of images, without labels."""
    from selftaught.recipes import parsed
    from selftaught.training import train as run

    options: dict[str, Any] = {
        "backbone": backbone,
        "weights": weights,
        "dim": dim,
        "epochs": epochs,
        "batch_size": batch_size,
        "neighbors": neighbors,
        "lr": lr,
        "seed": seed,
        "device": device,
    }
    changes = parsed(other or []) | {name: value for name, value in options.items() if value is not None}
    run(
        images,
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
    labeled: Annotated[Path, typer.Argument(help="Images in class folders; the folder's name is the label.")],
    json: Annotated[
        Path | None, typer.Option(help="Also write the scores to this file; - prints them instead.")
    ] = None,
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Measure a model on labeled images: Recall@k, MAP@R, R-Precision."""
    from selftaught.cli.using import evaluate as measure

    measure(run, labeled, json, device, allow_skipped)


@app.command()
def embed(
    run: Run,
    images: Annotated[Path, typer.Argument(help="A folder of images, however nested.")],
    out: Annotated[Path, typer.Option(help="vectors.parquet, or vectors.npy with the paths in vectors.json.")],
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Write the embeddings of all images in a folder."""
    from selftaught.cli.using import embed as write

    write(run, images, out, device, allow_skipped)


@app.command()
def search(
    run: Run,
    query: Annotated[Path, typer.Argument(help="The image to look for.")],
    within: Annotated[Path, typer.Option("--in", help="A folder of images, or a file written by selftaught embed.")],
    k: Annotated[int, typer.Option("-k", help="How many neighbors to show.", min=1)] = 10,
    out: Annotated[Path, typer.Option(help="The contact sheet to write.")] = Path("search.png"),
    device: Device = "auto",
    allow_skipped: AllowSkipped = False,
) -> None:
    """Find the images nearest to a query, and show them on a contact sheet."""
    from selftaught.cli.using import search as find

    find(run, query, within, k, out, device, allow_skipped)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put everything; must be new or empty.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the network and the training.")] = 0,
) -> None:
    """Train on drawn product photos that come with selftaught, and show what was learned. A few minutes on a CPU."""
    from selftaught.cli.demo import demo as show

    show(out, seed)
