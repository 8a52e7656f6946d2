# memsched: `make demo` sets up and does the main job on a real model; `make test` runs every check.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= models/nasnetmobile_int8.tflite
DEMO   ?= build/demo

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PRECIOUS: %_memsched.onnx %_memsched.tflite
.PHONY: help install demo test lint types bench bench-schedule bench-growth clean

help:  ## Say what there is
	@grep -hE '^[a-z%_.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

install: $(VENV)/installed  ## Make the virtual environment with all that development needs

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: install  ## Optimise a real branchy model, verify it, and show the figures (MODEL=... for another)
	@mkdir -p $(DEMO)
	$(BIN)/memsched optimize $(MODEL) --output $(DEMO)/$(basename $(notdir $(MODEL)))_memsched$(suffix $(MODEL)) \
	    --report $(DEMO)/$(basename $(notdir $(MODEL)))_memsched.json --force

test: install lint types  ## Run every check: lint, types, tests
	$(BIN)/python -m pytest -n auto

lint: install  ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install  ## Check types
	$(BIN)/mypy

bench: install  ## Measure: the tables of the README
	$(BIN)/python scripts/bench_models.py

SCHEDULE_TABLES = networks fusion ablation "onnxsim --install" cells "cells --nodes 64 --solver exact" \
    determinism "determinism -- --partitions 4"

bench-schedule: install  ## Measure the scheduler: the tables of docs/benchmarks.md (half an hour; TABLE=networks for one)
	@for table in $(or $(TABLE),$(SCHEDULE_TABLES)); do \
	    $(BIN)/python -m scripts.bench_schedule $$table || exit 1; echo; done
	$(if $(TABLE),,$(BIN)/python -m scripts.bench_partition)

bench-growth: install  ## Measure graphs of up to 100,000 ops: table and picture of docs/benchmarks.md
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m scripts.bench_growth --plot docs/images/growth.svg

clean:  ## Remove what was built, the virtual environment too
	rm -rf $(VENV) build

# How a firmware or deployment build uses memsched -----------------------------------------------------------------
# Any model next to its optimised one: `make path/to/model_memsched.onnx`. A failed verification stops the build.

%_memsched.onnx: %.onnx $(VENV)/installed
	$(BIN)/memsched optimize $< --output $@ --report $(@:.onnx=.json) --force --quiet

%_memsched.tflite: %.tflite $(VENV)/installed
	$(BIN)/memsched optimize $< --target $(or $(TARGET),tflm) --output $@ --report $(@:.tflite=.json) --force --quiet

# What the activations need, from the report, as a C header: `make path/to/model_arena.h`.
%_arena.h: %_memsched.tflite
	$(BIN)/python scripts/arena_header.py $(<:.tflite=.json) --output $@
