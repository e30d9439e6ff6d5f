# Everything runs from a bare clone: each target sets up what it needs in .venv.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# the first interpreter that is there, works and has a supported version
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint requirements/constraints.txt
JOBS ?= auto

.PHONY: help setup demo smoke test test-all golden lint type format bench reproduce-tables tables clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

.venv/base: pyproject.toml requirements/constraints.txt
	@test -n "$(PYTHON)" || { echo "fedbench needs Python 3.11, 3.12 or 3.13; set PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) --editable .
	@touch $@

.venv/dev: .venv/base
	$(PIP) --editable ".[dev]"
	@touch $@

setup: .venv/dev ## make .venv with everything for development

demo: .venv/base ## five algorithms on Synthetic, 2 seeds, reduced rounds: a table beside the paper's
	$(BIN)/fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,fedadam,qfedavg,fednova,adafedadam \
	  seed=0,1 rounds=200 results_dir=demo

smoke: .venv/base ## one small run
	$(BIN)/fedbench experiment=smoke results_dir=demo force=true

test: .venv/dev ## the fast tests; those on real data run if FEDBENCH_DATA is set
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow"

test-all: .venv/dev ## all tests, as CI runs them: also the slow ones, such as every method with every local solver
	$(BIN)/python -m pytest -q -n $(JOBS)

golden: .venv/dev ## store what every method gives now
	$(BIN)/python tests/golden/golden.py

lint: .venv/dev ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: .venv/dev ## types
	$(BIN)/mypy

format: .venv/dev ## put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/base ## speed, as a ratio to a tight PyTorch loop in the same run
	$(BIN)/python scripts/bench.py

PROFILE ?= cpu
RUNS ?= 1
reproduce-tables: .venv/base ## what the papers' tables need and is not done: PROFILE=full|cpu|smoke, RUNS at a time
	$(if $(filter-out 1,$(RUNS)),$(PIP) --editable ".[parallel]")
	$(BIN)/fedbench reproduce --profile $(PROFILE) --jobs $(RUNS)

tables: .venv/base ## Table 5 of AdaFedAdam, Synthetic, at the paper's full setting
	$(BIN)/fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,fedadam,qfedavg,fednova,adafedadam seed=0,1,2
	$(BIN)/fedbench report results

clean: ## remove .venv and caches; results stay
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
