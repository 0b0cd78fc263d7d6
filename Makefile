# Everything a newcomer needs; `make` alone lists it. Needs only Python >= 3.11, make and git.

PYTHON ?= python3
SCALE ?= laptop
AGENT ?= pcbf
WORKERS ?= 2
SEED ?= 0

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PACKAGES := $(addprefix packages/pcbf-,core baselines records experiments analysis)
SOURCES := packages tests benchmarks examples docs
WORKFLOW := Snakefile rules
PYTEST := pytest -n $(WORKERS) --dist worksteal

export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lock completion sheets watch reproduce quick run status plan publish figures tables docs
.PHONY: test check lint format types test-fast test-slurm torture bench clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

# --- set-up ---------------------------------------------------------------------------------------

setup: $(STAMP) ## create .venv with the locked versions and our packages

$(STAMP): requirements.lock $(PACKAGES:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pcbf needs Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) -V 2>&1); try: make setup PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing the locked versions into $(VENV) ..."
	@awk '/^uv==/ {found = 1} found {print} found && !/\\$$/ {exit}' requirements.lock > $(VENV)/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	@uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock || \
	  { echo "uv could not install them; trying pip, which reads other index settings ..."; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(PACKAGES:%=-e %)
	@$(BIN)/python -m compileall -q $(PACKAGES) # else each start would, where PYTHONDONTWRITEBYTECODE is set
	@touch $@

lock: $(STAMP) ## resolve requirements.in into requirements.lock (exact versions with hashes)
	uv pip compile requirements.in --output-file requirements.lock \
	  --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	  $(PACKAGES:packages/%=--no-emit-package %)
	uv pip compile requirements-cuda.in --output-file requirements-cuda.lock --constraint requirements.lock \
	  --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

completion: $(STAMP) ## write build/completion.bash, to be sourced: completion of all pcbf commands
	@mkdir -p build && for command in $(notdir $(wildcard $(BIN)/pcbf-*)); do PCBF_COMPLETE=bash $$command; done > build/completion.bash
	@echo "source $(CURDIR)/build/completion.bash"

sheets: $(STAMP) ## write what config/ and the packages hold of the registries of tasks and methods
	@python -m pcbf_experiments.sheets

watch: $(STAMP) ## play an episode of a trained agent (AGENT=pcbf, iql or bc), write its video; trains nothing
	@pcbf-watch $(AGENT)

# --- experiments ----------------------------------------------------------------------------------

reproduce: $(STAMP) ## run the laptop scale, compare it with what is published, say where everything is
	@$(MAKE) --no-print-directory run SCALE=laptop

quick: $(STAMP) ## run the smoke scale: the whole pipeline in a few minutes
	@$(MAKE) --no-print-directory run SCALE=smoke

run: $(STAMP) ## run SCALE (smoke, laptop, desk or paper) the same way
	@echo "running the $(SCALE) scale; Ctrl-C stops it; rerun to resume, finished work is skipped"
	@pcbf-progress -- snakemake --cores all --config scale=$(SCALE)
	@echo
	@pcbf-compare --results results/$(SCALE) --published results/published/$(SCALE)
	@echo
	@echo "report   results/$(SCALE)/report/index.html"
	@echo "tables   results/$(SCALE)/tables/"
	@echo "figures  results/$(SCALE)/figures/"

status: $(STAMP) ## say which training runs of SCALE are done, running, stopped or failed
	@pcbf-status results/$(SCALE)

plan: $(STAMP) ## say what the paper scale takes: runs, GPU hours, disk space, what is missing
	@pcbf-plan

publish: $(STAMP) ## promote the finished SCALE (default laptop) to results/published
	pcbf-agents results/$(SCALE)
	pcbf-publish $(SCALE)
	dvc repro

figures: $(STAMP) ## make the published figures and tables again from the published records, without training
	dvc repro

tables: figures ## the same

# --- quality --------------------------------------------------------------------------------------

test: $(STAMP) lint types ## lint, types and the whole test suite
	$(PYTEST)

check: $(STAMP) lint types test-fast ## the inner loop: lint, types and the fast tests

lint: $(STAMP)
	ruff check $(SOURCES)
	ruff format --check $(SOURCES)
	snakefmt --check $(WORKFLOW)

format: $(STAMP) ## put all code into the one format
	ruff check --fix $(SOURCES)
	ruff format $(SOURCES)
	snakefmt $(WORKFLOW)

types: $(STAMP)
	basedpyright

test-fast: $(STAMP)
	$(PYTEST) -m "not slow"

test-slurm: $(STAMP) ## run the smoke scale through Slurm on this machine (root; Debian's slurmctld slurmd slurm-client munge)
	pytest -m slurm

docs: $(STAMP) ## build the docs site into build/site; warnings are errors
	@python docs/build.py

torture: $(STAMP) ## run a small campaign under kills, full disks and damaged files (SEED=0; half an hour; root for all of them)
	python tests/faults/torture.py --seed $(SEED)

bench: $(STAMP) ## time what costs, as ratios; writes results/benchmarks (a quarter of an hour, wants an idle machine)
	pytest benchmarks --benchmark-enable --benchmark-only -s --durations=15

clean: ## remove caches and what your own runs made; .venv and what is published stay
	rm -rf $(filter-out results/README.md results/dvc.% results/published results/benchmarks, $(wildcard results/*))
	rm -rf .snakemake .cache .pytest_cache .ruff_cache .benchmarks build
	find packages tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
