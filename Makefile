# Everything a developer does here, by name. `make` alone lists the targets.

.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

export DAGSTER_HOME := $(CURDIR)/.dagster_home
export TICDC_LAKE ?= $(CURDIR)/.lake
export TICDC_CHANGEFEEDS ?= $(CURDIR)/changefeeds.yaml
# An environment that happens to be active is not ours to install into.
unexport VIRTUAL_ENV
unexport PYTHONPATH
# Programs that are started again and again, as tests do, would compile every module each time.
unexport PYTHONDONTWRITEBYTECODE

# The wire format of the demo, and whose messages they are: ticdc or tiflow (see its help).
FORMAT ?= simple-json
DIALECT ?=

VENV := .venv
BIN := $(VENV)/bin
# The version of .python-version first. A name that exists but does not run (a shim, a broken link)
# is passed over.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	"$$name" -c '$(SUPPORTED)' >/dev/null 2>&1 && { command -v "$$name"; break; }; done)

.PHONY: help
help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.made ## Install what runs into .venv, 1.5 GB (instant when nothing changed)
	@:

.PHONY: develop
develop: $(VENV)/.developed ## Install the tools of developers too, 0.6 GB more
	@:

# The stamp is newer than what it was made from: a changed lock installs again, nothing else does.
# An environment that works is brought up to date in place, never made again: something may run in it.
# Tools that are in it stay (--inexact), because `make setup` does not say that nobody needs them.
$(VENV)/.made: pyproject.toml uv.lock .python-version
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11 to 3.14 is needed and was not found on PATH (python3 here: $$(python3 --version 2>&1 || true)); install one, or run make with PYTHON=/path/to/python3.12." >&2; \
		exit 1; \
	fi; \
	"$$python" -m ticdc_assets.spark.preflight; \
	uv=$$(command -v uv || true); \
	if [ -z "$$uv" ]; then \
		uv=.venv-uv/bin/uv; \
		if [ ! -x $$uv ]; then \
			echo "uv is not on PATH: installing it into .venv-uv"; \
			rm -rf .venv-uv; \
			"$$python" -m venv .venv-uv || { \
				echo "Python's venv module does not work here: install your system's python3-venv package." >&2; \
				exit 1; }; \
			.venv-uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9.17'; \
		fi; \
	fi; \
	in_venv=$(BIN)/python; \
	$$in_venv -c '$(SUPPORTED)' 2>/dev/null || "$$uv" venv --quiet --clear --python "$$python" $(VENV); \
	"$$uv" sync --frozen --no-default-groups --inexact --python $$in_venv
	@touch $@

$(VENV)/.developed: $(VENV)/.made
	@$(UV) sync --frozen --python $(BIN)/python
	@touch $@

# Everything is of the lock, so workers run the versions that the driver runs. It is no copy of the
# machine's Python: workers need one of the same version under the same path.
ENVIRONMENT ?= .spark/environment
UV = $(shell command -v uv || echo .venv-uv/bin/uv)

.PHONY: environment
environment: setup ## Make the Python of a Spark cluster's workers, .spark/environment
	@rm -rf "$(ENVIRONMENT)"
	@$(UV) venv --quiet --relocatable --python $(BIN)/python "$(ENVIRONMENT)"
	@$(UV) export --quiet --frozen --only-group executors --no-hashes | \
		$(UV) pip install --quiet --python "$(ENVIRONMENT)/bin/python" --requirement -

.PHONY: archive
archive: environment ## Pack that Python for spark.archives, .spark/environment.tar.gz
	@tar -czf "$(ENVIRONMENT).tar.gz" -C "$(ENVIRONMENT)" .

.PHONY: demo
demo: setup ## Run one changefeed end to end, in FORMAT=simple-json or another; LIVE=1 goes on
	@$(BIN)/ticdc-assets demo --format "$(FORMAT)" $(if $(DIALECT),--dialect $(DIALECT)) $(if $(LIVE),--live)

.PHONY: ui
ui: setup ## Open the demo's instance in the Dagster UI
	@$(BIN)/ticdc-assets ui --demo .demo

# So many programs share the files of tests: one more than two cores, as programs also wait. The first
# one runs those that share a Spark session, as long as there are any; another that helps it starts its
# own, so each may take about 4 GB of memory. WORKERS= runs one.
WORKERS ?= 3
PYTEST = $(BIN)/python -m pytest $(if $(WORKERS),-n $(WORKERS) --dist loadfile \
	--no-loadscope-reorder --max-worker-restart 0)

PURE = not spark and not kafka and not dagster and not ui and not s3 and not hdfs and not cluster and not slow
FAST = $(PURE) and not thorough

.PHONY: test
test: develop chromium versitygw ## Run all tests but those marked slow, hdfs or cluster
	@$(PYTEST) -m "not slow and not hdfs and not cluster"

# A lake in a store and Spark on a cluster: what needs a real S3 or HDFS, or workers of their own.
.PHONY: test-cluster
test-cluster: WORKERS =
test-cluster: develop versitygw ## Run the tests of lakes on S3 and HDFS and of Spark clusters
	@$(PYTEST) -m "s3 or hdfs or cluster" --ignore ticdc_assets_tests/storage/test_s3_golden.py

# A real S3 over a folder, built once (one or two minutes) into the user's cache. Without Go the tests that need
# it skip and say so.
VERSITYGW := v1.8.0
TOOLS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/ticdc_assets_tools
.PHONY: versitygw
versitygw: ## Build the S3 gateway that tests use, once (Go)
	@folder="$(TOOLS)/versitygw/$(VERSITYGW)"; \
	if [ ! -x "$$folder/versitygw" ]; then \
		if command -v go >/dev/null; then \
			echo "building versitygw $(VERSITYGW) into $$folder, one or two minutes, once"; \
			limit=$$(command -v timeout >/dev/null && echo "timeout 900" || true); \
			GOBIN="$$folder" nice $$limit go install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW) || \
			echo "versitygw could not be built: the tests of S3 will be skipped."; \
		else \
			echo "go is missing: the tests of S3 will be skipped."; \
		fi; \
	fi

# About an hour, each part whatever becomes of the others: all golden streams in processes of
# their own and by Spark, storms, long histories, each part of the bench on very little; the property
# tests with many examples; a minute of damage for each format.
.PHONY: test-nightly
test-nightly: develop chromium versitygw ## Run what `make test` leaves out: slow and deep tests, fuzzing
	@failed=0; \
	$(PYTEST) -m slow || failed=1; \
	$(PYTEST) -m "$(PURE)" --hypothesis-profile=deep || failed=1; \
	$(BIN)/python -m fuzz || failed=1; \
	exit $$failed

.PHONY: test-fast
test-fast: develop ## Run the quick pure Python tests only, with few examples of each property
	@$(PYTEST) -m "$(FAST)" --hypothesis-profile=quick

# The ui tests need a browser. Where it can be had without asking anybody it is installed; where it
# cannot, the tests skip and say so.
.PHONY: chromium
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
		command -v google-chrome >/dev/null || { \
		if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
			echo "chromium is missing: installing it by apt-get for the ui tests"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || \
			echo "chromium could not be installed by apt-get: the ui tests will be skipped."; \
		else \
			echo "chromium is missing and needs root and apt-get to install: the ui tests will be skipped."; \
		fi; }

.PHONY: lint
lint: develop ## Check format, lint rules, layers and documents
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-logo
	@$(MKDOCS) build --strict

# What it prints of a later version of itself is no warning about these pages.
MKDOCS = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs

.PHONY: docs
docs: develop ## Serve the documentation on 127.0.0.1:8000, and build it again as pages change
	@$(MKDOCS) serve

.PHONY: format
format: develop ## Rewrite the files in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: type
type: develop ## Check types
	@$(BIN)/basedpyright

.PHONY: pictures
pictures: develop ## Make the pictures of the documents again: the UI and the report (chromium)
	TICDC_SCREENSHOTS=$(CURDIR)/docs/images $(BIN)/pytest -q ticdc_assets_tests/orchestration/test_ui.py

# ONLY= the names of some parts (python -m bench --help), to measure these again.
.PHONY: bench
bench: develop versitygw ## Run the benchmarks and print their tables (65 to 85 minutes)
	@$(BIN)/python -m bench $(foreach name,$(ONLY),--only $(name))

# FORMAT= one format or ddl, SECONDS= or COUNT= of each format, SEED= of an earlier run. A FORMAT that
# is only a default of this file is none that somebody chose.
.PHONY: fuzz
fuzz: develop ## Damage messages at random and see that the decoders stand it (a minute a format)
	@$(BIN)/python -m fuzz $(if $(filter file undefined,$(origin FORMAT)),,--format "$(FORMAT)") \
		$(if $(SECONDS),--seconds $(SECONDS)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

.PHONY: clean
clean: ## Remove environments, caches and what the demo made; your lake and Dagster instance stay
	rm -rf $(VENV) .venv-uv .demo .broker .fuzz .spark .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log site
