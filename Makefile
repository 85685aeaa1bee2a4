# Every target makes .venv when it is missing and installs anew when pyproject.toml changed.
# `make run` installs what the broker needs, `make test` adds the test clients, `make lint` the tools.

VENV  := .venv
BIN   := $(VENV)/bin
PIP   := $(BIN)/python -m pip --disable-pip-version-check --quiet
COMPILED := .venv-compiled
DATA  ?= ./data
ARGS  ?=
SEEDS ?= 200
# Tests at a time, which wait more than they work: 6 quick ones, 4 others.
WORKERS ?=
FIRST ?= 0
# Reports of tests that ran once more.
AGAIN ?=

# Or else each of the many brokers and commands that tests start compiles all of it again.
unexport PYTHONDONTWRITEBYTECODE

# PYTHON=/path/to/python overrides the search.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo $$python && break; done)

.DEFAULT_GOAL := all
.PHONY: all run test test-slow test-compiled proofs lint format bench bench-spark bench-stalls \
  compiled demo sim clean help

all: format lint test  ## format, lint and the fast tests: what a change must pass

run: $(VENV)/.installed-run  ## start a broker on ./data (DATA=dir, ARGS='--kafka-port 0')
	@exec $(BIN)/entrepot serve --data-dir $(DATA) $(ARGS)

test: $(VENV)/.installed-test  ## the fast tests (ARGS='-k journal')
	$(BIN)/python -m pytest -q -n $(or $(WORKERS),6) -m "not slow" --junitxml=build/tests-fast.xml $(ARGS)

test-slow: $(VENV)/.installed-test  ## crashes, Spark, more seeds and examples, large logs
	$(BIN)/python -m pytest -q -n $(or $(WORKERS),4) -m "slow or hypothesis" \
	  --hypothesis-profile thorough --junitxml=build/tests-slow.xml $(ARGS)

test-compiled: $(COMPILED)/.installed-test  ## the contracts, on a compiled broker
	$(COMPILED)/bin/python -m pytest -q -n $(or $(WORKERS),6) -m "not slow and not pure" \
	  tests/unit tests/property tests/end_to_end $(ARGS)

proofs: $(VENV)/.installed-test  ## did every test run that docs/REQUIREMENTS.md cites?
	$(BIN)/python -m tests.proofs build/tests-fast.xml build/tests-slow.xml $(wildcard $(AGAIN))

lint: $(VENV)/.installed-dev  ## format check, lint, types, import contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed-dev  ## format the code and sort its imports
	$(BIN)/ruff check --quiet --fix --exit-zero .
	$(BIN)/ruff format --quiet .

bench: $(VENV)/.installed-test  ## measure, beside Apache Kafka where Java and Maven are there
	$(BIN)/python -m bench $(ARGS)
	@test -n "$(ARGS)" || $(BIN)/python -m bench.stalls
	@test -n "$(ARGS)" || $(BIN)/python -m bench.gossip
	@test -n "$(ARGS)" || $(BIN)/python -m bench.sqs
	@test -n "$(ARGS)" || $(BIN)/python -m bench.stomp_amqp10

bench-spark: $(VENV)/.installed-test  ## measure the Spark source, beside Spark's own Kafka connector
	$(BIN)/python -m bench.spark $(ARGS)

bench-stalls: $(VENV)/.installed-test  ## measure how long others wait while one client asks for much
	$(BIN)/python -m bench.stalls $(ARGS)

compiled: $(COMPILED)/.installed-run  ## a second installation, compiled; docs/guides/compiled.md
	@echo "start it with $(COMPILED)/bin/entrepot serve"

demo: $(VENV)/.installed-demo  ## the whole story in a minute or two: broker, Spark, alerts, a picture
	$(BIN)/python -m examples.demo $(ARGS)

sim: $(VENV)/.installed-run  ## the simulation (SEEDS=1000; FIRST=17 SEEDS=1 replays one)
	$(BIN)/python -m sim --seeds $(SEEDS) --first $(FIRST) $(ARGS)

clean:  ## remove both installations, caches and builds; ./data is yours and stays
	rm -rf $(VENV) $(COMPILED) build dist src/*.egg-info
	find . -type d \( -name __pycache__ -o -name '.*_cache' -o -name .hypothesis \) -prune \
	  -exec rm -rf {} +

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PRECIOUS: %/bin/python  # Make would take it for a means to an end, and remove it.
%/bin/python:
	@test -n "$(PYTHON)" || { echo "entrepot needs Python 3.11 or newer with the venv module." \
	  "Install it (Debian and Ubuntu: apt install python3 python3-venv)" \
	  "or say where it is: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "making $* with $(PYTHON) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $*

$(VENV)/.installed-run: pyproject.toml | $(BIN)/python
	@echo "installing entrepot"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	@echo "installing entrepot with what the demo needs, Spark above all: 700 MB, some minutes"
	@$(BIN)/python -m pip --disable-pip-version-check install --editable '.[demo]'
	@touch $@ $(VENV)/.installed-run

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	@echo "installing entrepot with its test clients"
	@$(PIP) install --editable '.[test]'
	@touch $@ $(VENV)/.installed-run $(VENV)/.installed-demo

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing entrepot with its test clients and tools"
	@$(PIP) install --editable '.[dev]'
	@touch $@ $(VENV)/.installed-test $(VENV)/.installed-run $(VENV)/.installed-demo

# What an earlier build left there would be installed, too.
$(COMPILED)/.installed-run: pyproject.toml setup.py $(shell find src -name '*.py') | $(COMPILED)/bin/python
	@echo "compiling entrepot, which takes some minutes"
	@rm -rf build/lib* build/temp* build/bdist*
	@ENTREPOT_COMPILE=1 $(COMPILED)/bin/python -m pip --disable-pip-version-check --quiet install .
	@touch $@

# By their names: to install '.[test]' would compile all of it again.
$(COMPILED)/.installed-test: $(COMPILED)/.installed-run
	@$(COMPILED)/bin/python -c 'import tomllib; \
	  project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*project["optional-dependencies"]["test"], sep="\n")' \
	  | $(COMPILED)/bin/python -m pip --disable-pip-version-check --quiet install -r /dev/stdin
	@touch $@
