# On a fresh machine: `make tune` installs and tunes it, `make test` installs and runs the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The CuPy extra that fits the GPU and its driver, if there is one: cuda13, cuda12 or nothing.
GPU_EXTRA = $(shell $(PYTHON) -m autotune.device 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help install tune test test-faults test-gpu test-compile lint format clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".$(if $(GPU_EXTRA),[$(GPU_EXTRA)])"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev$(if $(GPU_EXTRA),$(comma)$(GPU_EXTRA))]"
	@touch $@

comma := ,

install: $(VENV)/.installed  ## make .venv and install there

tune: install  ## tune this machine (about 5 minutes) and show what won
	$(BIN)/autotune tune

# Tests of kernels, models and the search are arithmetic in one process; they run beside the others, which often wait.
ARITHMETIC := $(addprefix tests/,variants emulation search replay native policies model predict test_examples.py)

test: $(VENV)/.installed-dev  ## lint, type-check and test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@$(BIN)/python -m pytest -q $(ARITHMETIC) > $(VENV)/arithmetic.log 2>&1 & beside=$$!; \
	$(BIN)/python -m pytest -q $(ARITHMETIC:%=--ignore=%); others=$$?; \
	wait $$beside; arithmetic=$$?; cat $(VENV)/arithmetic.log; exit $$((others || arithmetic))

test-faults: $(VENV)/.installed-dev  ## kills, full disks and damaged files by the hundred (an hour)
	$(BIN)/python benchmarks/faults.py

# Most of their time is compiling. Each process takes a gigabyte or two of the GPU's memory.
GPU_TESTS_AT_ONCE ?= 8

test-gpu: $(VENV)/.installed-dev  ## test the kernels on this machine's GPU
	$(BIN)/python -m pytest -q tests/gpu -rs -n $(GPU_TESTS_AT_ONCE) --dist loadgroup

test-compile: $(VENV)/.installed-dev  ## every variant in both dtypes, every CUDA kernel for every architecture
	AUTOTUNE_TEST_COMPILE=1 $(BIN)/python -m pytest -q tests/variants tests/emulation -rs

lint: $(VENV)/.installed-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev  ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
