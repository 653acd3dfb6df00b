# Needs make, Python from 3.11 on, and the package registry; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := $(BIN)/python -m pytest -q

.PHONY: setup demo test test-fast test-system test-laws check lock clean

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

test: setup
	$(PYTEST) -m "not system"

test-fast: setup
	$(PYTEST) -m "not slow and not system"

# Tests that need more than Python packages; each says what it misses. No such test is no failure (exit code 5).
test-system: setup
	$(PYTEST) -m system || [ $$? -eq 5 ]

# The laws with many more examples than in make test; takes minutes.
test-laws: setup
	UPWIRE_LAW_EXAMPLES=20000 $(PYTEST) --timeout=0 tests/laws

check: setup
	$(BIN)/ruff format --check gateway tests
	$(BIN)/ruff check gateway tests
	$(BIN)/mypy
	$(BIN)/lint-imports

lock: setup
	$(PIP) uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --upgrade \
		--group pyproject.toml:dev --extra demo pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
