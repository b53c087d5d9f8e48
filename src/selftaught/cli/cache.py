"""The decoded images on this disk: list and delete them."""

import typer

app = typer.Typer(help="Decoded images that training keeps: see them, delete them.", no_args_is_help=True)


@app.command("list")
def list_collections() -> None:
    """Show the folders whose decoded images are kept. Where they are, and their size."""
    import time

    from selftaught.console import print_table
    from selftaught.data import CACHE_LIMIT, CACHE_PLACE, cache_limit, cache_root, cached_collections
    from selftaught.errors import printable

    root, found = cache_root(), cached_collections()
    if found:
        rows = []
        for held in found:
            used = time.strftime("%Y-%m-%d %H:%M", time.localtime(held.used))
            rows.append((printable(held.name), f"{held.bytes / 1e9:.2f} GB", used))
        print_table(("images", "size", "last used"), rows)
    total = sum(held.bytes for held in found)
    limit = f"of at most {cache_limit(root) / 1e9:.0f} GB" if root.is_dir() else "so far"
    others = f"{CACHE_PLACE} sets another place, {CACHE_LIMIT} another limit"
    print(f"{total / 1e9:.2f} GB {limit} in {printable(root)} ({others})")


@app.command()
def clear() -> None:
    """Delete all decoded images, except those that a run is using. They are decoded again when needed."""
    from selftaught.data import cache_root, cached_collections, delete_collection
    from selftaught.errors import SelftaughtError, counted, printable

    found = cached_collections()
    left = [held for held in found if not delete_collection(held)]
    gone = sum(held.bytes for held in found if held not in left)
    print(f"{gone / 1e9:.2f} GB deleted in {printable(cache_root())}")
    if left:
        raise SelftaughtError(
            f"{counted(len(left), 'collection of decoded images is', 'collections of decoded images are')} in use or "
            "cannot be deleted, such as that of "
            f"{printable(left[0].name)}: try again when no training is running"
        )
