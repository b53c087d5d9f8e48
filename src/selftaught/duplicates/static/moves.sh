#!/bin/sh
# Moves every copy but the best of its group to a folder, which may be given as argument.
# Written by selftaught dedup; look through it, then run it with sh. Nothing is deleted or overwritten.
set -eu
moved=0
default=TARGET
target=${1:-$default}
move() { # the best copy, which must still be there; the copy to move; its place below the target
  if [ ! -e "$1" ]; then printf 'kept, because the best copy is gone: %s\n' "$2" >&2
  elif [ ! -e "$2" ]; then printf 'not there: %s\n' "$2" >&2
  elif [ -e "$target/$3" ]; then printf 'kept, because its place is taken: %s\n' "$2" >&2
  else
    place=$target/$3
    mkdir -p -- "${place%/*}"
    mv -- "$2" "$place"
    moved=$((moved + 1))
  fi
}
