# Everything runs in .venv, made on first use; only make and Python 3.11 or newer are needed. Another interpreter: make test PYTHON=python3.13
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# The matrices of demo and tests are small: more BLAS threads only wait for each other, and one thread adds in one order, so runs repeat exactly.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

# Files of tests run side by side, one file in one process, so that what a file computes once is shared by its tests. One at a time: make test JOBS=0
JOBS ?= $(shell $(PYTHON) -c 'import os; print(min(max(os.cpu_count() or 2, 2), 8))')

.PHONY: help demo test test-lowest test-newest lint types docs build check-package clean

help:
	@echo "make demo           draw the paper's figures, quick version, into demo/, with the certificate of every fit"
	@echo "make test           run the tests, files side by side; ARGS='-k kernels' passes arguments on to pytest, JOBS=0 runs one at a time"
	@echo "make test-lowest    the same with the lowest versions that pyproject.toml allows"
	@echo "make test-newest    the same with the newest versions that there are"
	@echo "make lint           style and types of the package"
	@echo "make types          mypy and pyright, as a user runs them, on README.md and examples/"
	@echo "make docs           build the site into build/site/, warnings and broken links as errors; open build/site/index.html, no network needed"
	@echo "make build          wheel and source archive in dist/"
	@echo "make check-package  build, check what the package index would show, and try both archives in an empty environment"
	@echo "make clean          remove what the commands above made, .venv included"

demo: $(VENV)/.installed-plot
	$(ONE_THREAD) $(BIN)/python -m examples.paper --quick --output demo

test: $(VENV)/.installed-test
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

# Old versions use what later versions of their own dependencies deprecate: that is not ours to repair.
OLD := -W default::DeprecationWarning -W default::PendingDeprecationWarning -W default::FutureWarning

test-lowest:
	mkdir -p build
	$(PYTHON) tools/floors.py > build/floors.txt
	$(MAKE) test VENV=build/lowest OPTIONS='--constraint build/floors.txt' ARGS='$(OLD) $(ARGS)'

test-newest:
	rm -f build/newest/.installed-test
	$(MAKE) test VENV=build/newest OPTIONS='--upgrade --upgrade-strategy eager' ARGS='$(ARGS)'

lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

types: $(VENV)/.installed-types
	$(BIN)/python tools/check_types.py

# Scripts that did not change are not run again, so the second time is quick.
docs: $(VENV)/.installed-docs
	$(ONE_THREAD) $(BIN)/python -m sphinx -b html -E -W --keep-going -q -j auto docs build/site
	@echo "build/site/index.html"

build: $(VENV)/.created
	$(INSTALL) build twine
	rm -rf dist
	$(BIN)/python -m build

check-package: build
	$(BIN)/twine check --strict dist/*
	$(ONE_THREAD) $(BIN)/python tools/check_package.py

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis docs/gallery docs/how-to docs/reference/generated
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: an environment is made once, and an extra is installed again only when pyproject.toml has changed.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "ksos needs Python 3.11 or newer; '$(PYTHON) --version' says: $$($(PYTHON) --version 2>&1 || true). Name another one: make PYTHON=python3.12 ..." >&2; \
	  exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed-%: pyproject.toml constraints.txt | $(VENV)/.created
	$(INSTALL) --constraint constraints.txt $(OPTIONS) --editable '.[$*]'
	@touch $@
