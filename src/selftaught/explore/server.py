"""The page on an address of this machine, until Ctrl-C."""

import os
import secrets
import socket
import sys
from importlib.util import find_spec
from pathlib import Path

from selftaught.errors import UsageError, counted
from selftaught.explore.exhibit import Exhibit


def serve(exhibit: Exhibit, port: int, selections: Path, *, browser: bool) -> None:
    """Show an exhibit at 127.0.0.1, which other machines do not reach; ``port`` 0 takes a free one."""
    import uvicorn

    from selftaught.explore.app import make_app
    from selftaught.explore.maps import Maps

    try:
        place = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise UsageError(f"port {port} cannot be used: {error.strerror}; choose another by --port") from None
    token = secrets.token_urlsafe(16)
    maps = Maps([version.vectors for version in exhibit.versions])
    app = make_app(exhibit, maps, token, selections)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    address = f"http://127.0.0.1:{place.getsockname()[1]}/{token}/"
    print(
        f"{counted(len(exhibit), 'photo')} to explore: {address}\n(only from this machine; Ctrl-C ends it)", flush=True
    )
    maps.start()
    if browser:
        import webbrowser

        webbrowser.open(address)
    try:
        uvicorn.Server(config).run(sockets=[place])
    except KeyboardInterrupt:  # the usual way to stop
        pass
    finally:
        if not maps.stop():  # Python would abort at its exit if a thread still runs compiled code
            sys.stdout.flush()
            os._exit(0)


def check_installed() -> None:
    if any(find_spec(name) is None for name in ("openTSNE", "starlette", "uvicorn")):
        raise UsageError("exploring needs more packages: pip install 'selftaught[explore]'")
