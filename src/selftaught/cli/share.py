"""selftaught share: a model with its card, as a folder or on the model hub."""

from pathlib import Path

from selftaught.cli.model_use import load_model
from selftaught.cli.options import ModelUse
from selftaught.errors import UsageError, printable
from selftaught.files import fill_folder


def share(use: ModelUse, out: Path | None, push: str | None, public: bool, license: str | None) -> None:  # noqa: A002
    if (out is None) == (push is None):
        raise UsageError("say where to: --out FOLDER, or --push user/name")
    if push is not None:
        print(f"uploaded: {load_model(use).push_to_hub(push, private=not public, license=license)}")
    if out is not None:
        with fill_folder(out) as place:
            shared = load_model(use).save(place, license=license)
        print(f"the model and its card are in {printable(out)}")
        if shared.why_not is not None:
            print(f"only selftaught can load it: {shared.why_not}")
            return
        print("timm, transformers and sentence-transformers can load it too; their vectors beside the model's:")
        for what, words in shared.parity.items():
            print(f"  {what}: {words}")
