# Two commands matter: `make demo` and `make test`. Both make .venv first if it is missing or out of date.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WHEELS := $(CURDIR)/build/wheels
DEMO_DATA := --hospitals 6 --set data.phantom-examples=6000
DEMO := --set privacy.mechanism=dp-sgd --set model.name=mlp --set training.optimizer=sgd \
	--set training.learning-rate=0.5 --set aggregation.rule=buffered --set aggregation.rounds=14 \
	--set masking.mode=interleaved --set masking.size=512 --set masking.refresh=augment --set masking.cache=runs/demo-caches
DEMO_CACHES := --generator phantom --filter none --labels balanced --unchecked --images 512

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help setup demo bench test lint types unit test-slow test-deploy test-base docs constraints clean

help: ## Show the targets.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(READY) ## Make .venv with everything needed for development.

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(READY) ## Train six simulated hospitals, asynchronously, with DP-SGD and masking, through `flwr run`: runs/demo/report.html.
	$(BIN)/aegis cache build runs/demo-caches --every --resume $(DEMO_DATA) $(DEMO_CACHES)
	$(BIN)/aegis simulate --engine flower --name demo $(DEMO_DATA) $(DEMO)

bench: $(READY) ## Time noise, ledger and DP-SGD against their baselines, and write docs/results/02-privacy.md.
	$(BIN)/aegis experiment privacy --part noise --part ledger --part dp-sgd

test: lint types unit ## Lint, types and the fast tests.

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest

test-slow: $(READY) ## The tests that take long.
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow

test-deploy: $(READY) $(WHEELS) ## Build the images, start server and hospitals by compose, and train; needs a container engine.
	AEGIS_WHEELS=$(WHEELS) OMP_NUM_THREADS=1 $(BIN)/pytest -m containers

$(WHEELS): constraints-cpu.txt
	$(BIN)/pip download --quiet --no-deps --dest $@ --constraint constraints-cpu.txt torch
	touch $@

test-base: ## The hospital's minimal installation: CPU torch, no Ray, no torchvision, no diffusers.
	$(PYTHON) -m venv .venv-base
	.venv-base/bin/pip install --quiet --constraint constraints-cpu.txt .
	rm -rf build
	.venv-base/bin/python tests/base_installation.py

docs: $(READY) ## Rewrite the generated pages.
	$(BIN)/python -m deploy.configuration_docs

constraints: $(READY) ## Pin what is installed now.
	$(BIN)/pip freeze --exclude-editable | grep -vE '^aegis' > constraints.txt

clean: ## Remove the environment and caches, never runs/.
	rm -rf $(VENV) .venv-base .mypy_cache .ruff_cache .pytest_cache .hypothesis
