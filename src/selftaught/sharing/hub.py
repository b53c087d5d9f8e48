"""Models on the model hub."""

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import huggingface_hub
from huggingface_hub.errors import LocalTokenNotFoundError, RepositoryNotFoundError

from selftaught.errors import SelftaughtError, UsageError, one_line, printable
from selftaught.model_files import DESCRIPTION, WEIGHTS
from selftaught.networks import hub_reachable

REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
LOGIN = "log in with: hf auth login"


def looks_like_repository(name: str) -> bool:
    """Whether this can be user/name on the hub: there is no file or folder with the name of its first part.

    Example:
        >>> looks_like_repository("someone/birds"), looks_like_repository("/tmp/run"), looks_like_repository("run")
        (True, False, False)
    """
    return REPOSITORY.fullmatch(name) is not None and not Path(name).parent.exists()


def download(repository: str) -> Path:
    """The folder with a model of the hub; files that were fetched before are not fetched again."""
    offline = not hub_reachable()
    try:
        found = huggingface_hub.snapshot_download(
            repository, allow_patterns=[DESCRIPTION, WEIGHTS], local_files_only=offline
        )
    except RepositoryNotFoundError:
        raise UsageError(
            f"there is no run {printable(repository)}, no backbone and no public model of the hub of that name: "
            f"check the spelling, or {LOGIN}"
        ) from None
    except Exception as error:  # those of the network and of the hub share no class
        why = "the model hub cannot be reached" if offline else one_line(error)
        raise SelftaughtError(
            f"there is no run {printable(repository)}, and no model of that name could be fetched: {why}"
        ) from None
    return Path(found)


def upload(write: Callable[[Path], object], repository: str, private: bool) -> str:
    """Write a model's folder and put it on the hub; returns its address."""
    if REPOSITORY.fullmatch(repository) is None:
        raise UsageError(f"{printable(repository)} is no name on the hub: give user/name")
    if not hub_reachable():
        raise SelftaughtError(f"the model hub cannot be reached, so {repository} was not uploaded")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        write(folder)
        try:
            made = huggingface_hub.create_repo(repository, private=private, exist_ok=True)
            huggingface_hub.upload_folder(
                repo_id=repository, folder_path=folder, commit_message="A model made with selftaught"
            )
        except LocalTokenNotFoundError:
            raise UsageError(f"{repository} was not uploaded, because you are not logged in: {LOGIN}") from None
        except Exception as error:  # as above
            raise SelftaughtError(f"{repository} was not uploaded: {one_line(error)} ({LOGIN})") from None
    return str(made)
