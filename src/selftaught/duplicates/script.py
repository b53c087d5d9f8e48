"""A shell script that moves copies out of a collection. Nothing is ever deleted."""

import shlex
from pathlib import Path

from selftaught.duplicates.copies import Duplicates
from selftaught.files import plain_path

SCRIPT = """#!/bin/sh
# Moves every copy but the best of its group to a folder, which may be given as argument.
# Written by selftaught dedup; look through it, then run it with sh. Nothing is deleted or overwritten.
set -eu
moved=0
default=TARGET
target=${1:-$default}
move() { # the best copy, which must still be there; the copy to move; its place below the target
  if [ ! -e "$1" ]; then printf 'kept, because the best copy is gone: %s\\n' "$2" >&2
  elif [ ! -e "$2" ]; then printf 'not there: %s\\n' "$2" >&2
  elif [ -e "$target/$3" ]; then printf 'kept, because its place is taken: %s\\n' "$2" >&2
  else
    place=$target/$3
    mkdir -p -- "${place%/*}"
    mv -- "$2" "$place"
    moved=$((moved + 1))
  fi
}
"""


def moving_script(found: Duplicates, target: Path) -> str:
    """A POSIX shell script that moves all copies except the best of each group; names may hold any characters."""
    lines = [SCRIPT.replace("TARGET", shlex.quote(str(target)))]
    root = plain_path(found.images.root)
    for number, group in enumerate(found.groups, 1):
        lines.append(f"# group {number}")
        best = shlex.quote(str(root / found.images.files[group.copies[0].index]))
        for copy in group.copies[1:]:
            file = found.images.files[copy.index]
            lines.append(f"move {best} {shlex.quote(str(root / file))} {shlex.quote(file)}")
    lines.append('printf \'%s moved to %s\\n\' "$moved" "$target"')
    return "\n".join(lines) + "\n"
