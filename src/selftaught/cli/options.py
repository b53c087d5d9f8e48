"""Options that several commands share. Imports nothing heavy."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any

import typer

Run = Annotated[
    str,
    typer.Argument(
        help="A run (a folder written by selftaught train), or a pretrained backbone's name, such as "
        "tf_efficientnet_lite0.",
        metavar="RUN|NAME",
    ),
]
Images = Annotated[
    str, typer.Argument(help="A folder of images, with any subfolders, or tar shards.", metavar="IMAGES")
]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal results on a CPU.", min=0, max=2**63 - 1)]
Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu, cuda, cuda:1, mps.")]
AllowSkipped = Annotated[
    bool, typer.Option("--allow-skipped", help="Go on if over 5% of the images, or whole folders, cannot be read.")
]
Size = Annotated[
    int | None,
    typer.Option(
        help="Side in pixels at which the model sees images; larger often finds more, the time grows with its square. "
        "(default: the model's own)"
    ),
]
Mirror = Annotated[bool, typer.Option("--mirror", help="See each image mirrored too, and average: 2 times the time.")]
Scales = Annotated[
    int | None, typer.Option(help="See each image at 2 or 3 sizes and average: 2.6 or 3.2 times the time. (default: 1)")
]
Whiten = Annotated[
    bool | None,
    typer.Option(
        "--whiten",
        show_default=False,
        help="Rescale (half-whiten) vectors on these images, so that fine differences count more; this often helps an "
        "untrained backbone. One more pass over at most 20,000 of them.",
    ),
]
WhitenUntrained = Annotated[
    bool | None,
    typer.Option(
        "--whiten/--no-whiten",
        help="Rescale (half-whiten) vectors on these images, so that fine differences count more. (default: for an "
        "untrained backbone, on 30 images or more)",
        show_default=False,
    ),
]
Level = Annotated[
    str | None,
    typer.Option(
        help="Which folders name the classes: top, those directly in the folder, or leaf, those that hold the images. "
        "(default: leaf if images lie only in such folders, else top)"
    ),
]
Labels = Annotated[
    str | None, typer.Option(help="Instead of folders, a CSV file with the columns path and label.", metavar="FILE")
]


@dataclass(frozen=True)
class ModelUse:
    """Which model a command uses, and how it looks at images: an argument and options, see :func:`uses_model`."""

    run: Run
    device: Device = "auto"
    size: Size = None
    mirror: Mirror = False
    scales: Scales = None
    whiten: Whiten = None


def uses_model(**others: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the argument and the options of :class:`ModelUse`; it gets them as one value, ``use``.

    ``others``: another description of some of them, None for those that the command does not have.
    """
    kinds = {name: kind for name, kind in (ModelUse.__annotations__ | others).items() if kind is not None}
    run, *looks = (
        Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(ModelUse, name, Parameter.empty), annotation=kind)
        for name, kind in kinds.items()
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def call(**given: Any) -> None:
            command(ModelUse(**{name: given.pop(name) for name in kinds}), **given)

        _, *own = signature(command).parameters.values()
        own = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in own]
        call.__signature__ = Signature([run, *own, *looks])  # type: ignore[attr-defined]
        return call

    return decorate
