# Every target works from a fresh clone: it sets up what it needs in .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# the first interpreter found with a supported version
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info[:3] < (3, 14))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --constraint requirements/constraints.txt
# On Linux pip takes PyTorch with 2 GB of CUDA libraries. uv knows PyTorch's own index, and takes the build for CPUs where
# there is no NVIDIA driver; it installs nothing if that index is out of reach, and pip does.
UV := VIRTUAL_ENV=.venv UV_TORCH_BACKEND=auto UV_CONSTRAINT=requirements/constraints.txt $(BIN)/uv pip
ELSE := echo "PyTorch's own index cannot be used (see above); pip installs what its index has"
JOBS ?= auto
# neighbouring tests share what they set up, so a process gets a stretch of them
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

.PHONY: help setup demo smoke test test-all test-gpu golden lint type licences audit vulnerabilities format docs site notebook dist bench \
  reproduce-tables fairness-benchmark tables clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

.venv/base: pyproject.toml requirements/constraints.txt
	@test -n "$(PYTHON)" || { echo "fedbench needs Python 3.11.4 or later, up to 3.13, and none was found; run make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) uv
	$(UV) install --editable . || { $(ELSE); $(PIP) --editable .; }
	@touch $@

.venv/dev: .venv/base
	$(UV) install --editable ".[dev,docs]" || { $(ELSE); $(PIP) --editable ".[dev,docs]"; }
	@touch $@

setup: .venv/dev ## create .venv with all development tools

demo tables: .venv/base ## reproduce Table 5 of AdaFedAdam on Synthetic in full: 15 runs, about a minute on 2 cores
	$(BIN)/fedbench -m experiment=adafedadam/table5_synthetic algo=fedavg,fedadam,qfedavg,fednova,adafedadam \
	  seed=0,1,2 results_dir=demo
	$(BIN)/fedbench report demo
	@echo "next: $(BIN)/fedbench -m algo=fedavg,qfedavg data=synthetic_leaf seed=0,1,2  # a table of your own"

smoke: .venv/base ## run one small experiment
	$(BIN)/fedbench experiment=smoke results_dir=demo force=true

test: .venv/dev ## run the fast tests; those on real data need FEDBENCH_DATA
	$(PYTEST) -m "not slow"

test-all: .venv/dev ## run all tests as CI does, also the slow ones
	$(PYTEST)

test-gpu: .venv/dev ## run the tests of a GPU, on the first that is visible
	FEDBENCH_TEST_GPU=1 $(PYTEST) tests/contract/test_gpu.py

golden: .venv/dev ## update the stored golden runs of all algorithms
	$(BIN)/python tests/golden/golden.py

lint: .venv/dev ## check the style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: .venv/dev ## check the types
	$(BIN)/mypy

# names of the pinned packages; packages that somebody has installed besides are not ours to check
PINNED = $(shell sed -nE 's/^([A-Za-z0-9_.-]+)==.*/\1/p' requirements/constraints.txt)
# permissive licences, and MPL, which asks for the source of changed files only; parts of names, since packages spell them
LICENCES := MIT;BSD;Apache;Python Software Foundation;PSF;ISC;MPL;Mozilla Public License;Unlicense;CC0

licences: .venv/dev ## check the licences of the dependencies
	$(BIN)/pip-licenses --packages $(PINNED) --from=mixed --partial-match --allow-only="$(LICENCES)" --summary \
	  --ignore-packages axe-playwright-python # its metadata name none; its licence file is MIT

audit: licences ## check the dependencies for known vulnerabilities (needs the network) and for their licences, and the code
	$(BIN)/ruff check --select S .
	$(MAKE) vulnerabilities

vulnerabilities: .venv/dev ## the part of audit that needs the network
	@said=$$(mktemp); $(BIN)/pip-audit --requirement requirements/constraints.txt --no-deps --disable-pip 2> $$said; status=$$?; \
	if grep -qE "^requests\.exceptions\.|^pip_audit.*ConnectionError" $$said; then \
	  echo "nothing is known of vulnerabilities: their database cannot be reached; run make audit again with a network" >&2; \
	else cat $$said >&2; fi; rm -f $$said; exit $$status

format: .venv/dev ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/base ## generate docs/configuration.md from the comments in conf/
	$(BIN)/python scripts/config_reference.py

site: .venv/dev ## build the documentation site in build/site; warnings are errors
	$(BIN)/python -m sphinx -q -W --keep-going docs build/site
	@echo "written: build/site/index.html"

notebook: .venv/dev ## run the notebook of the documentation again and store what it prints
	$(BIN)/python scripts/notebook.py

bench: .venv/base ## measure speed relative to a plain PyTorch loop
	$(BIN)/python scripts/bench.py

PROFILE ?= cpu
RUNS ?=
HOURS ?=
reproduce-tables: .venv/base ## run what the papers' tables still need: PROFILE=full|cpu|smoke, RUNS at a time, what fits into HOURS
	$(BIN)/fedbench reproduce --profile $(PROFILE) $(if $(RUNS),--jobs $(RUNS)) $(if $(HOURS),--hours $(HOURS))

fairness-benchmark: .venv/base ## tune all methods on four settings and compare them with FedAvg, in DIR (hours; needs MNIST, FEMNIST and CIFAR-10)
	$(BIN)/python scripts/fairness_benchmark.py $(or $(DIR),results/fairness) $(if $(RUNS),--jobs $(RUNS))

dist: .venv/dev ## build the wheel and the sdist in dist/
	$(BIN)/python -m hatchling build

clean: ## remove .venv and caches, but no results
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
