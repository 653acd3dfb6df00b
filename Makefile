# The Python that builds the environment; anything from 3.11 on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-fast test-laws check lock clean

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

setup: $(STAMP)

check: setup
	$(BIN)/ruff format --check gateway tests
	$(BIN)/ruff check gateway tests
	$(BIN)/mypy
	$(BIN)/lint-imports

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		--group pyproject.toml:dev --extra demo pyproject.toml -o requirements.lock
