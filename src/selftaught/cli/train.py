"""selftaught train."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from selftaught.cli.options import AllowSkipped, Labels, Level


def train(
    images: Annotated[
        str | None,
        typer.Argument(
            help="A folder of images, with any subfolders; labels are not needed. "
            "Or a data set of the paper, such as cub:/data/CUB_200_2011, or tar shards: 'shards/{000..127}.tar'.",
            metavar="IMAGES",
        ),
    ] = None,
    labeled: Annotated[
        str | None,
        typer.Option(help="Semi-supervised, instead of IMAGES: class folders to learn from first.", metavar="FOLDER"),
    ] = None,
    unlabeled: Annotated[
        str | None, typer.Option(help="Semi-supervised: more images, without labels.", metavar="FOLDER")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder to write: model, settings, metrics, curves.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(help="Continue this run; with --epochs N up to epoch N, even beyond its end.", metavar="RUN"),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Begin with the network of this run instead of a pretrained one, when photos were added.",
            metavar="RUN",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="best (what was found best on photos), official (as the authors ran it), paper (as its text says), "
            "sop (few photos of each thing), scratch (no weights), semi (for --labeled; its default). (default: best)"
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="stml; for comparison moco, byol, msf, nce, isif, exemplar, mom, deepcluster, udml-ss, hyperbolic; "
            "with class folders as labels contrastive, multi-similarity, proxy-anchor, abier, abe; "
            "slade (for --labeled). (default: stml)"
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="auto, small, googlenet, bn_inception, torchvision.NAME, any timm name, or package.module:function "
            "(your own, returns a network). (default: auto, a pretrained ResNet50; offline EfficientNet-Lite0)"
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(help="auto (pretrained), none, a run, or a .safetensors, .pth or .npz file. (default: auto)"),
    ] = None,
    trained: Annotated[
        str | None,
        typer.Option(
            "--train",
            help="all, or heads: only the last layers learn, and the backbone stays as it is, which takes minutes "
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
            help="Pixels at which the finished model sees images; the time grows with its square. "
            "(default: 9/7 of the crop it is trained with, 288 for 224)"
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images in a batch, each seen in two views. (default: 120, fewer for small folders)"),
    ] = None,
    neighbors: Annotated[
        int | None,
        typer.Option(
            help="Images per query in a batch, the query included. "
            "(default: 5, or 2 or 3 where there are only so few photos of a thing)"
        ),
    ] = None,
    lr: Annotated[
        float | None, typer.Option(help="Learning rate of the backbone. (default: 0.0001, less in short runs)")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Equal seeds and --epochs give equal runs on a CPU. (default: 0)")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps. (default: auto)")
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            "--eval", help="Class folders to measure on after every epoch; never trained on.", metavar="LABELED"
        ),
    ] = None,
    level: Level = None,
    labels: Labels = None,
    snapshots: Annotated[
        int | None, typer.Option(help="Keep the networks every N epochs, for figures and explore. (default: none)")
    ] = None,
    allow_skipped: AllowSkipped = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also log to RUN/tensorboard.")] = False,
    report: Annotated[
        bool, typer.Option(help="At the end, show what was learned on a page, RUN/report.html: about a minute more.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, and the time and memory it would take.")
    ] = False,
    other: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other setting, such as --set sigma=2; --set help lists them.", metavar="NAME=VALUE"
        ),
    ] = None,
) -> None:
    """Train an embedding model on a folder of images, without labels.

    Minutes on a GPU for a few thousand images; about 40 minutes without one, longer for large folders. --dry-run
    tells the time beforehand. Ctrl-C saves, and --resume continues. With --labeled and --unlabeled, training
    begins with the labels and continues on all images without them. Defaults are those of the recipe best.

    Example: selftaught train photos --out run
    """
    from selftaught.learners import describe_settings, parse_settings

    if other == ["help"]:
        print(describe_settings())
        return
    from selftaught.cli.report import report_on_training
    from selftaught.training import train as run

    options: dict[str, Any] = {"method": method, "backbone": backbone, "weights": weights, "train": trained}
    options |= {"dim": dim, "epochs": epochs, "batch_size": batch_size, "neighbors": neighbors, "lr": lr}
    options |= {"use_size": use_size, "seed": seed, "device": device, "snapshots": snapshots}
    changes = {name: value for name, value in options.items() if value is not None}
    run(
        images,
        labeled=labeled,
        unlabeled=unlabeled,
        out=out,
        resume=resume,
        from_run=start,
        recipe=recipe,
        eval=evaluate,
        level=level,
        labels=labels,
        allow_skipped=allow_skipped,
        tensorboard=tensorboard,
        dry_run=dry_run,
        at_end=partial(report_on_training, device or "auto") if report else None,
        **parse_settings(other or [], method) | changes,
    )
