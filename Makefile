# Every target works from a fresh clone: it sets up what it needs in .venv first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# the first interpreter found with a supported version
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
  $$p -c 'import sys; sys.exit(not (3, 11, 4) <= sys.version_info[:3] < (3, 15))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# On Linux pip takes PyTorch with 2 GB of CUDA libraries. uv knows PyTorch's own index, and takes the build for CPUs where
# there is no NVIDIA driver. If uv cannot reach an index, it installs nothing, and pip tries with the indexes it has.
# Packages are compiled when they are installed: where PYTHONDONTWRITEBYTECODE is set, every start would compile them.
UV := VIRTUAL_ENV=.venv UV_TORCH_BACKEND=auto UV_COMPILE_BYTECODE=1 $(BIN)/uv pip
install = $(UV) install $(1) || { echo "uv cannot install these packages (see above); pip tries next"; $(PIP) install $(1); }
# Every downloaded file must have a hash that the lock lists. antlr4 has no wheel, and the locked setuptools builds it.
LOCKED := --require-hashes --only-binary :all: --no-binary antlr4-python3-runtime --no-build-isolation --requirement
JOBS ?= auto
# neighbouring tests share what they set up, so a process gets a stretch of them
PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
TESTS := not slow and not processes and not whole

.PHONY: help setup demo smoke test test-all test-gpu golden lint type licences audit vulnerabilities lock format docs site notebook dist bench \
  reproduce-tables fairness-benchmark tables clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 18

.venv/base: pyproject.toml requirements/build.txt requirements/base.txt requirements/torch.txt
	@test -n "$(PYTHON)" || { echo "fedbench needs Python 3.11.4 to 3.14, and none was found (there are no wheels of daqp for 3.15 yet);" \
	  "run make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install $(LOCKED) requirements/build.txt
	$(call install,$(LOCKED) requirements/base.txt)
	$(call install,--requirement requirements/torch.txt)
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.venv/dev: .venv/base requirements/dev.txt
	$(call install,$(LOCKED) requirements/dev.txt)
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
	$(PYTEST) -m "$(TESTS)"

test-all: .venv/dev ## run all tests, also the slow ones and those that start programs
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

# the pinned packages, for every platform; packages that somebody has installed besides are not ours to check
PINS := sed -nE 's/^([A-Za-z0-9_.-]+==[^ ]+).*/\1/p' requirements/dev.txt requirements/torch.txt
PINNED = $(shell $(PINS) | cut -d = -f 1)
# permissive licences, and MPL, which asks for the source of changed files only; parts of names, since packages spell them
LICENCES := MIT;BSD;Apache;Python Software Foundation;PSF;ISC;MPL;Mozilla Public License;Unlicense;CC0

licences: .venv/dev ## check the licences of the dependencies
	$(BIN)/pip-licenses --packages $(PINNED) --from=mixed --partial-match --allow-only="$(LICENCES)" --summary \
	  --ignore-packages axe-playwright-python # its metadata name none; its licence file is MIT

audit: licences ## check the dependencies for known vulnerabilities (needs the network) and for their licences, and the code
	$(BIN)/ruff check --select S .
	$(MAKE) vulnerabilities

vulnerabilities: .venv/dev ## the part of audit that needs the network
	@said=$$(mktemp); $(BIN)/pip-audit --requirement <($(PINS)) --no-deps --disable-pip 2> $$said; status=$$?; \
	if grep -qE "^requests\.exceptions\.|^pip_audit.*ConnectionError" $$said; then \
	  echo "nothing is known of vulnerabilities: their database cannot be reached; run make audit again with a network" >&2; \
	else cat $$said >&2; fi; rm -f $$said; exit $$status

# the same for every platform and supported Python; torch.txt says why the packages that sed removes have no hashes
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11.4 --generate-hashes --no-annotate \
  --custom-compile-command "make lock" --constraint requirements/torch.txt
UPGRADE ?=

lock: .venv/base ## write requirements/ from pyproject.toml; UPGRADE=--upgrade or UPGRADE="-P numpy" takes newer releases
	$(LOCK) $(UPGRADE) --extra dev --extra docs --group build pyproject.toml --output-file requirements/dev.txt
	$(LOCK) --constraint requirements/dev.txt pyproject.toml --output-file requirements/base.txt
	$(LOCK) --constraint requirements/dev.txt --group build --output-file requirements/build.txt
	sed -i.all -E '/^(torch|torchvision|triton|cuda-[a-z]+|nvidia-[a-z0-9-]+)==/,/[^\]$$/d' requirements/dev.txt requirements/base.txt
	rm requirements/*.all

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
	$(BIN)/fedbench benchmark fair results_dir=$(or $(DIR),results/fairness) $(if $(RUNS),--jobs $(RUNS))

dist: .venv/dev ## build the wheel and the sdist in dist/
	$(BIN)/python -m hatchling build

clean: ## remove .venv and caches, but no results
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
