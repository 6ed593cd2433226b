# Each target makes the virtual environment it needs; a machine with Python >= 3.10 and make suffices.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-models test-vllm test-browser check mutants clean help

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "relaygen needs Python 3.10 or newer; call: make PYTHON=/path/to/python3 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.llama: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[llama]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[test]'
	@touch $@ $(VENV)/.llama

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[browser]'
	@touch $@ $(VENV)/.test $(VENV)/.llama

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.browser $(VENV)/.test $(VENV)/.llama

demo: $(VENV)/.llama ## fetch the embedded pair (1.6 GB, once) and relay a real question
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo

test: $(VENV)/.test ## all tests that need no model
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/test

test-models: $(VENV)/.test ## real generations on the embedded pair
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/test-models

test-vllm: $(VENV)/.test ## live tests against real vLLM servers on the CPU (Python 3.11, Linux x86-64)
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHON="$(PYTHON)" sh scripts/test-vllm

test-browser: $(VENV)/.browser ## the playground in a headless Chromium, which must be installed
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/test-browser

check: $(VENV)/.dev ## format, lint and types
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/check

mutants: $(VENV)/.test ## plant each listed fault; every one must fail a test
	@PATH="$(CURDIR)/$(BIN):$$PATH" python scripts/mutants.py

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .venv-vllm .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
