"""A shell script that moves copies out of a collection. Nothing is ever deleted."""

import shlex
from pathlib import Path

from selftaught.duplicates.copies import Duplicates
from selftaught.files import plain_path, read_static


def moving_script(found: Duplicates, target: Path) -> str:
    """A POSIX shell script that moves copies, all but the best of each group; names may hold any characters."""
    lines = [read_static("duplicates", "moves.sh").replace("TARGET", shlex.quote(str(target)))]
    root = plain_path(found.images.root)
    for number, group in enumerate(found.groups, 1):
        lines.append(f"# group {number}")
        best = shlex.quote(str(root / found.images.files[group.copies[0].index]))
        for copy in group.copies[1:]:
            if copy.kind == "fingerprint":  # further from the best copy than the threshold
                continue
            file = found.images.files[copy.index]
            lines.append(f"move {best} {shlex.quote(str(root / file))} {shlex.quote(file)}")
    lines.append('printf \'%s moved to %s\\n\' "$moved" "$target"')
    return "\n".join(lines) + "\n"
