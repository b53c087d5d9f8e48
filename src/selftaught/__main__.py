"""``python -m selftaught``."""

from selftaught.cli import main

main()
