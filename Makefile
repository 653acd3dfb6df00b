# Needs make, Python from 3.11 on, and the package registry; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := $(BIN)/python -m pytest -q

OPS := .venv-ops

.PHONY: setup demo test test-fast test-system test-deploy test-laws check ops lock clean

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("Python 3.11 or newer is needed; name one: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes -r requirements.lock
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

setup: $(STAMP)

# An agent loop with and without the gateway, against a simulated upstream; no key, under a minute.
demo: setup
	$(BIN)/upwire demo

# Half of what tests do is wait for sockets, so two processes take half the time on two cores.
test: setup
	$(PYTEST) -n 2 -m "not system"

test-fast: setup
	UPWIRE_LAW_EXAMPLES=25 $(PYTEST) -n 2 -m "not slow and not system"

# Tests that need more than Python packages; each says what it misses. No such test is no failure (exit code 5).
test-system: setup
	$(PYTEST) -m system || [ $$? -eq 5 ]

# The checks of deploy/: linters, schemas, alert rules, and the image's steps in a bare Debian.
test-deploy: setup
	$(PYTEST) tests/deploy

# The laws with many more examples than in make test; takes minutes.
test-laws: setup
	UPWIRE_LAW_EXAMPLES=20000 $(PYTEST) --timeout=0 tests/laws

check: setup
	$(BIN)/ruff format --check gateway tests
	$(BIN)/ruff check gateway tests
	$(BIN)/mypy
	$(BIN)/lint-imports

# What checks deploy/ and a release, in an environment of its own.
ops: $(OPS)/.installed
$(OPS)/.installed: deploy/requirements-ops.lock
	$(PYTHON) -m venv $(OPS)
	$(OPS)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $<
	@touch $@

# All locked versions anew; what runs in an image or checks a release has the versions of the development environment.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: setup
	$(PIP) uv
	$(COMPILE) --upgrade --group pyproject.toml:dev --extra demo --extra otel pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o deploy/requirements.lock
	$(COMPILE) --constraint requirements.lock --extra otel pyproject.toml -o deploy/requirements-otel.lock
	$(COMPILE) --constraint requirements.lock --group pyproject.toml:build -o deploy/requirements-build.lock
	$(COMPILE) --constraint requirements.lock --group pyproject.toml:ops -o deploy/requirements-ops.lock

clean:
	rm -rf $(VENV) $(OPS) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
