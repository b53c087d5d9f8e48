PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test clean

# Train on the embedded product photos and show what was learned.
demo: .venv/installed
	rm -rf demo
	$(BIN)/selftaught demo --out demo

# Lint, types, all tests.
test: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

clean:
	rm -rf .venv demo

.venv/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "selftaught needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv
	@echo "Installing into .venv; PyTorch is large, so this takes some minutes."
	$(BIN)/pip install --disable-pip-version-check -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/pip install --disable-pip-version-check -e '.[dev]'
	touch $@
