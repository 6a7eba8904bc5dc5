# All tasks of the project. CI runs `make check`, and every change must pass it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --require-hashes
PYTEST := $(BIN)/python -m pytest
TESTERS ?= 2

# Without bytecode files, every start would compile the code again: a third of a second.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup serve test test-lowest test-newest versions check lint types fix bless baseline bench bench-check torture docs pictures lock clean

help:
	@echo 'make setup    .venv with the cordwood command, from the committed lock'
	@echo 'make serve    a service with generated events, and three curl commands to try it'
	@echo 'make test     all tests and every page of spec/'
	@echo 'make test-lowest test-newest   quick tests on the lowest and the newest versions that pyproject.toml allows'
	@echo 'make check    lint, types, all tests, and both ends of the permitted versions: what CI runs'
	@echo 'make fix      format the code, and fix what ruff can fix'
	@echo 'make bless    rewrite the expected fences of spec/ from the current results; review the diff'
	@echo 'make baseline   record again which conformance cases are right on each engine'
	@echo 'make docs     write the reference pages that are generated from the code'
	@echo 'make pictures the pictures of README and guide, from a demo'
	@echo 'make bench    the benchmarks of bench/, beside DuckDB and PostgreSQL (BENCH="questions --events 200000")'
	@echo 'make bench-check   the same; fails when one is worse than bench/baseline.json beyond noise'
	@echo 'make torture  the crash tests, in full'
	@echo 'make lock     resolve requirements/*.lock again (UPGRADE=--upgrade: to the newest)'

setup: $(VENV)/run.stamp

serve: $(VENV)/run.stamp
	$(BIN)/cordwood serve --demo

# In two processes. A test file runs in one of them, so that what it starts is started once.
test: $(VENV)/dev.stamp
	$(PYTEST) --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder

# Each in a new venv, because the newest versions are those of today.
QUICK = tests/unit/dependencies tests/unit/catalog tests/unit/web tests/unit/engines/duckdb tests/contract tests/property spec \
  tests/journey/test_http_queries.py tests/journey/test_http_upgrades.py

PRIVATE_PARTS = tests/unit/dependencies tests/contract/test_engine.py tests/journey/test_http_upgrades.py

test-lowest test-newest: test-%: $(BIN)/python
	rm -rf $(VENV)/$*
	$(PYTHON) -m venv $(VENV)/$*
	$(BIN)/python -m tests.dependency_versions $* $(VENV)/$*
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install --quiet -r $(VENV)/$*/requirements.txt -c $(VENV)/$*/constraints.txt
	$(VENV)/$*/bin/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	$(VENV)/$*/bin/python -m pytest $(QUICK) -k 'not clickhouse' --numprocesses $(TESTERS) --dist loadfile --no-loadscope-reorder

# The tests of what is used of the dependencies' private parts, with both ends of the permitted versions.
versions:
	@$(MAKE) --no-print-directory --keep-going test-lowest test-newest QUICK="$(PRIVATE_PARTS)"

# Continue after failures, so that one run shows all of them.
check:
	@$(MAKE) --no-print-directory --keep-going lint types test versions

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

fix: $(VENV)/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bless: $(VENV)/dev.stamp
	$(PYTEST) spec --bless

baseline: $(VENV)/dev.stamp
	$(BIN)/python -m tests.conformance.baseline

bench: $(VENV)/dev.stamp
	$(BIN)/python -m bench $(BENCH)
	$(BIN)/python -m bench.serving

bench-check: $(VENV)/dev.stamp
	$(BIN)/python -m bench --check $(BENCH)

torture: $(VENV)/dev.stamp
	TORTURE=full $(PYTEST) tests -m torture --timeout 0

docs: $(VENV)/dev.stamp
	$(BIN)/python -m tests.unit.settings.settings_page
	$(BIN)/python -m tests.unit.cli.cli_page

pictures: $(VENV)/dev.stamp
	$(BIN)/python -m tests.browser.readme_picture

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The venv is created once; a stamp is renewed when its lock file or pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cordwood needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/run.stamp: requirements/build.lock requirements/run.lock pyproject.toml | $(BIN)/python
	$(INSTALL) -r requirements/build.lock -r requirements/run.lock
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	$(INSTALL) -r requirements/dev.lock
	@touch $@

# uv resolves for all platforms at once; it is installed into a temporary venv for this task only.
LOCK = $(LOCK_VENV)/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet $(UPGRADE)
LOCK_VENV = $(VENV)/lock-tools

lock: | $(BIN)/python
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip --disable-pip-version-check install --quiet uv
	$(LOCK) --group build --output-file requirements/build.lock
	$(LOCK) pyproject.toml --extra jwt --output-file requirements/run.lock
	$(LOCK) pyproject.toml --extra jwt --group dev --constraints requirements/run.lock --output-file requirements/dev.lock
