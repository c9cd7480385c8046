# The commands of this project. They need Linux, GNU make and Python 3.11 or later; everything
# else is fetched into .venv (packages, a Java machine, PostgreSQL) and the caches of this user.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Workers of the test suite: they mostly wait for servers, so more than there are cores.
WORKERS ?= 6
# Seconds after which a single test is stopped.
TIMEOUT_S ?= 180

.PHONY: help demo test acceptance bench test-one hunt lint format soak chaos lock clean

help: ## shows this list
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' Makefile | while IFS=: read -r name text; do printf '  make %-11s %s\n' "$$name" "$$text"; done

# Finds a Python that is new enough and can make environments; Debian ships some that cannot.
define find_python
for name in $${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 python; do \
  if "$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
    echo "$$name"; exit 0; \
  fi; \
done; \
echo 'No Python 3.11 or later with the modules venv and ensurepip was found (Debian: apt-get install python3-venv).' >&2; \
echo 'Install one, or name it: make PYTHON=/path/to/python3' >&2; exit 1
endef

# A stamp is written last, so an interrupted installation is done again.
$(BIN)/python:
	@python=$$($(find_python)); echo "making .venv with $$python"; "$$python" -m venv .venv

.venv/product: $(BIN)/python requirements.lock pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index --editable .
	touch $@

.venv/dev: .venv/product requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

demo: .venv/product ## runs the whole pipeline, kills it several times, audits it (two minutes)
	$(BIN)/gapless demo

test: lint ## checks the style and runs the suite against real servers (12 minutes at most)
	$(PYTEST) tests --ignore=tests/acceptance --ignore=tests/benchmarks -n $(WORKERS) --dist loadgroup --timeout $(TIMEOUT_S)

acceptance: .venv/dev ## runs the pipeline against servers that this project did not write
	$(PYTEST) tests/acceptance --timeout 900

bench: .venv/dev ## measures, prints a table and writes bench.json
	$(BIN)/python -m tests.benchmarks

test-one: .venv/dev ## runs the tests that match: make test-one K=expression
	@test -n "$(K)" || { echo 'usage: make test-one K=expression' >&2; exit 2; }
	$(PYTEST) tests -k '$(K)' --timeout $(TIMEOUT_S)

hunt: .venv/dev ## searches all properties with new random examples
	GAPLESS_TEST_EXAMPLES=hunt $(PYTEST) tests/property tests/unit tests/contract -n $(WORKERS) --timeout 900

lint: .venv/dev ## checks style, types and the directions of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/dev ## writes all Python files in one style
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

soak: .venv/dev ## runs the pipeline for hours under a changing load
	$(BIN)/python -m tests.soak

chaos: .venv/dev ## runs the pipeline under random kills, stops and outages, then a crowd of workers
	$(BIN)/python -m tests.chaos
	$(BIN)/python -m tests.chaos.crowd

COMPILE := $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'
lock: .venv/dev ## writes the lock files anew (LOCK=--upgrade takes newer versions)
	$(COMPILE) $(LOCK) pyproject.toml --extra local --group build -o requirements.lock
	$(COMPILE) $(LOCK) pyproject.toml --extra local --group build --group dev -c requirements.lock -o requirements-dev.lock
	$(COMPILE) $(LOCK) pyproject.toml -c requirements.lock -o requirements-image.lock
	$(COMPILE) $(LOCK) --group build -c requirements.lock -o requirements-build.lock
	! grep -nE '://|--index|--find-links' requirements*.lock

clean: ## removes what these commands made; keeps the data of `gapless up`
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench.json
	find ingest apply schemas ops tests -type d -name __pycache__ -prune -exec rm -rf {} +
