# Needs make, Python from 3.11 on, and the package registry; everything else is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := $(BIN)/python -m pytest -q

OPS := .venv-ops
FRESH := .venv-fresh
PYTHONS ?= 3.12 3.13 3.14

.PHONY: setup demo test test-fast test-uvloop test-pythons test-system test-clients client-results test-deploy test-laws chaos fuzz bench bench-quick bench-agent bench-compression bench-sizing check docs ops release sbom audit lock clean

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

# Without the long fights with bad peers: under two minutes on two cores.
LONG = adversity fuzz storm walls workers
test-fast: setup
	UPWIRE_LAW_EXAMPLES=25 $(PYTEST) -n 2 -m "not slow and not system" $(LONG:%=--ignore=tests/%)

# What speaks over sockets once more, on the other event loop; about three minutes.
test-uvloop: setup
	UPWIRE_TEST_LOOP=uvloop $(PYTEST) -n 2 --timeout 60 -m "not system" tests/faces tests/faults tests/adversity tests/upstream \
		tests/upstreams_several tests/downstream tests/walls

# The fast tests with every further Python that is here; those that are not are named.
test-pythons:
	@for version in $(PYTHONS); do \
		found=; \
		for one in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
			"$$one" -c "" 2>/dev/null && found=$$one; \
		done; \
		if [ -z "$$found" ]; then echo "Python $$version: not on this machine, so nothing was tested with it"; continue; fi; \
		echo "Python $$version: $$found"; \
		$(MAKE) --no-print-directory VENV=.venv-$$version PYTHON="$$found" test-fast || exit 1; \
	done

# Tests that need more than Python packages; each says what it misses. No such test is no failure (exit code 5).
test-system: setup
	$(PYTEST) -m system || [ $$? -eq 5 ]

# Real clients, installed from the registries into a cache outside this folder (UPWIRE_CLIENTS names another), about ten minutes.
CLIENTS = UPWIRE_INSTALL_CLIENTS=1 $(PYTEST) -m system tests/clients
test-clients: setup
	$(CLIENTS)

# The same, and the committed table anew.
client-results: setup
	UPWIRE_CLIENT_RESULTS=write $(CLIENTS)

# The checks of deploy/: linters, schemas, alert rules, and the image's steps in a bare Debian.
test-deploy: setup
	$(PYTEST) tests/deploy

# The laws with many more examples than in make test; takes minutes.
test-laws: setup
	UPWIRE_LAW_EXAMPLES=20000 $(PYTEST) --timeout=0 tests/laws

# A long storm: everything that can fail does, at once, and every turn is judged. SEED=n repeats one; REPLICAS=2 plays it against two
# gateways that share a Redis (redis-server must be there), WORKERS=2 against two processes of one gateway.
TURNS ?= 2000
chaos: setup
	$(BIN)/python -m tests.storm --turns $(TURNS) $(if $(SEED),--seed $(SEED)) $(if $(REPLICAS),--replicas $(REPLICAS)) $(if $(WORKERS),--workers $(WORKERS))

# Each target by itself, guided by coverage; what they find is kept in .fuzz, and one that breaks something is named.
MINUTES ?= 10
TARGETS ?= bodies exchanges conversations faces
fuzz: setup
	$(PIP) 'atheris>=3'
	@set -e; for target in $(TARGETS); do $(BIN)/python -m tests.fuzz $$target --minutes $(MINUTES); done

# The gateway beside nginx (installed where it is missing and may be) and a plain pass-through: every target, measured; ten minutes.
bench: setup
	$(BIN)/python -m tests.bench

# Processor ratios only, in under three minutes; fails for one that is worse than 1.5 times what tests/bench/recorded.json holds.
# To record anew: python -m tests.bench --quick --record
bench-quick: setup
	$(BIN)/python -m tests.bench --quick --check

# What compressing frames saves of recorded sessions, and what it costs a frame and a socket.
bench-compression: setup
	$(BIN)/python -m tests.bench.compression

# Agent loops over an emulated link, directly and through the gateway. RECORD=--record, then make docs: what the README quotes.
bench-agent: setup
	$(BIN)/python -m tests.bench.agent $(RECORD)

# What one conversation, turn and idle socket take: the tables of deploy/sizing.md. WRITE=--write puts them there.
bench-sizing: setup
	$(BIN)/python -m tests.bench.sizing $(WRITE)

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

# Builds what is released into dist/ and tries it as a user gets it. Nothing is uploaded.
release: ops
	rm -rf dist $(FRESH)
	$(OPS)/bin/python -m hatchling build -d dist
	$(OPS)/bin/twine check --strict dist/*
	$(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python -m pip --disable-pip-version-check install --quiet dist/*.whl
	$(FRESH)/bin/upwire --version
	$(FRESH)/bin/python -m pip --disable-pip-version-check install --quiet "$$(echo dist/*.whl)[demo]"
	$(FRESH)/bin/upwire demo
	$(MAKE) --no-print-directory sbom audit

# What the image is made of: a bill of materials (CycloneDX) and the licences, which must be among these.
LICENCES := MIT;BSD;Apache;MPL-2.0;PSF;Python Software Foundation
sbom: ops
	test -d dist || $(OPS)/bin/python -m hatchling build -t wheel -d dist
	rm -rf $(FRESH)
	$(PYTHON) -m venv --without-pip $(FRESH)
	$(OPS)/bin/python -m pip --python $(FRESH)/bin/python install --quiet --require-hashes -r deploy/requirements.lock
	$(OPS)/bin/python -m pip --python $(FRESH)/bin/python install --quiet --no-deps --no-index dist/*.whl
	sed "s/^dynamic = .*/version = \"$$($(FRESH)/bin/upwire --version | cut -d' ' -f2)\"/" pyproject.toml > $(FRESH)/pyproject.toml
	$(OPS)/bin/cyclonedx-py environment --output-reproducible --pyproject $(FRESH)/pyproject.toml -o dist/upwire.cdx.json $(FRESH)/bin/python
	$(OPS)/bin/pip-licenses --python=$(FRESH)/bin/python --from=mixed --order=license --with-urls --format=markdown \
		--partial-match --allow-only="$(LICENCES)" --output-file=dist/licences.md

# Known vulnerabilities of what the image is made of; a registry that serves no advisories is named, and is no failure.
audit: ops
	@mkdir -p dist
	@$(OPS)/bin/pip-audit --progress-spinner off --require-hashes --disable-pip -r deploy/requirements.lock > dist/audit.txt 2>&1 \
		|| { cat dist/audit.txt; exit 1; }
	@echo "audit: $$(grep -c == deploy/requirements.lock) packages, of which" \
		"$$(grep -c 'could not be audited' dist/audit.txt || true) could not be audited here; see dist/audit.txt"

# What is made from the code: config/reference.md, config/upwire.toml, tables and diagrams. Tests hold all to it.
docs: setup
	$(BIN)/python -m tests.documents

# All locked versions anew; what runs in an image or checks a release has the versions of the development environment.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header
lock: setup
	$(PIP) uv
	$(COMPILE) --upgrade --group pyproject.toml:dev --extra demo --extra otel pyproject.toml -o requirements.lock
	$(COMPILE) --constraint requirements.lock pyproject.toml -o deploy/requirements.lock
	$(COMPILE) --constraint requirements.lock --extra otel pyproject.toml -o deploy/requirements-otel.lock
	$(COMPILE) --constraint requirements.lock --extra redis pyproject.toml -o deploy/requirements-redis.lock
	$(COMPILE) --constraint requirements.lock --group pyproject.toml:build -o deploy/requirements-build.lock
	$(COMPILE) --constraint requirements.lock --group pyproject.toml:ops -o deploy/requirements-ops.lock

clean:
	rm -rf .venv .venv-* dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .import_linter_cache .coverage
