# The commands for contributors. `make` without a target lists them. To use another Python: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
STRESS ?= 1
RUN := $(VENV)/bin/python -m
# Each process starts with an equal part of the tests in their order, so that the set-up of most files runs once, and
# takes tests from another when it has none left. Each process also imports every test. The end-to-end tests wait more
# than they compute, so they use the cores best with twice as many processes as cores, and the others with fewer.
PYTEST := pytest --dist worksteal --numprocesses
PYTEST_ALL := $(PYTEST) 4 --hypothesis-profile ci

# Keep compiled modules whatever the environment says: the tests start hundreds of programs that import goldspan.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: demo install format lint types test test-all cover cover-rest recipes recordings stress bench docs site screenshots help

demo: $(VENV)/.web ## score the requests of a scripted agent, offline, and print how to view them
	@$(VENV)/bin/goldspan demo --out .demo

install: $(VENV)/.dev ## install everything that contributors need into .venv

format: $(VENV)/.dev ## sort imports and format the code
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

lint: $(VENV)/.dev ## check style, format and the import layers
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(VENV)/bin/lint-imports --no-logo

types: $(VENV)/.dev ## mypy --strict
	$(RUN) mypy

test: $(VENV)/.dev ## run the tests in two minutes; the last lines name what was skipped and what is left for test-all
	$(if $(COVER),$(RUN) coverage erase)
	$(RUN) $(if $(COVER),coverage run -m) $(PYTEST) 3 -m 'not stress and not e2e' --hypothesis-profile default

test-all: $(VENV)/.dev ## run the end-to-end tests too, and each law with five times as many examples
	$(RUN) $(PYTEST_ALL)

cover: $(VENV)/.dev ## run the tests of test-all with branch coverage, each law as in test; no test may be skipped
	$(RUN) coverage erase
	$(RUN) coverage run -m $(PYTEST) 4 --hypothesis-profile default --nothing-skipped
	$(RUN) coverage combine --quiet
	$(RUN) coverage report

cover-rest: $(VENV)/.dev ## after `make test COVER=1`: run what it left out, and report the coverage of both
	$(RUN) coverage run -m $(PYTEST) 4 --hypothesis-profile default --nothing-skipped --rest
	$(RUN) coverage combine --quiet
	$(RUN) coverage report

recipes: ## create the environments of the tracers, frameworks, clients and products that some tests need, in .recipes
	@$(PYTHON) tests/recipes/environments.py

recordings: $(VENV)/.dev ## record what some frameworks export, and what Phoenix and MLflow reply, into tests/fixtures
	@$(VENV)/bin/python tests/recipes/recording/record.py
	@$(VENV)/bin/python tests/recipes/recording/record_products.py

stress: $(VENV)/.dev ## run the tests that take hours, and each law with thousands of examples; STRESS=0.01 makes them a hundredth as long
	STRESS=$(STRESS) $(RUN) pytest -m 'stress or hypothesis' --hypothesis-profile thorough --capture=no -o faulthandler_timeout=0

bench: $(VENV)/.dev ## measure the figures in the documentation
	@for script in benchmarks/*.py; do echo "== $$script"; $(VENV)/bin/python $$script || exit 1; done

docs: $(VENV)/.dev ## generate parts of the documentation, run its examples and check its links
	@$(VENV)/bin/python docs/generate_conventions.py
	@$(VENV)/bin/python docs/generate_diagrams.py
	@$(VENV)/bin/goldspan goldens schema > docs/goldens.schema.json
	@$(VENV)/bin/python docs/generate_gateway.py
	@$(VENV)/bin/goldspan serve --json-schema > docs/goldspan.schema.json
	$(RUN) pytest tests/test_docs.py

site: $(VENV)/.docs ## build the documentation site into .site; open .site/index.html
	@# Not with --quiet, which hides the warnings from --strict.
	@NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --strict || { rm -rf .site; exit 1; }

screenshots: $(VENV)/.dev ## take the pictures in docs/images, with Chromium and the products of `make recipes`
	@$(VENV)/bin/python docs/generate_screenshots.py
	@$(VENV)/bin/python docs/generate_product_screenshots.py

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r target purpose; do \
		printf '  make %-11s %s\n' "$$target" "$$purpose"; done

# A stamp older than pyproject.toml means that the environment must be updated.

$(VENV)/.web: pyproject.toml | $(VENV)/bin/python
	@echo "Installing goldspan into $(VENV) (once, and whenever pyproject.toml changes)"
	@$(RUN) pip install --quiet --disable-pip-version-check --editable '.[web]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing goldspan and its tools into $(VENV) (once, and whenever pyproject.toml changes)"
	@$(RUN) pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@# Compile the tests once. Otherwise each process of the first `make test` compiles all of them.
	@$(RUN) pytest --collect-only --quiet --quiet >/dev/null || true # `make test` reports errors
	@touch $(VENV)/.web $@

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@echo "Installing goldspan and MkDocs into $(VENV) (once, and whenever pyproject.toml changes)"
	@$(RUN) pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "'$(PYTHON)' was not found. Name a Python 3.10 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
		echo "goldspan needs Python 3.10 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>&1)." \
			"Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "'$(PYTHON)' cannot create virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
