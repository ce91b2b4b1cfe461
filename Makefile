# Everything starts from a machine that has Python >= 3.10 and make. `make help` lists what there is.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
# One thread per worker, as many workers as cores: faster than two workers fighting for all of them.
CORES  := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')

.DEFAULT_GOAL := help
.PHONY: help install demo test check test-nbs test-py notebooks readme lab hooks clean

help:  ## what you can do here
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.installed: settings.ini setup.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "deepgp_fss needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) --version). Name another one: make PYTHON=python3.12"; exit 1; }
	@echo "== creating $(VENV) and installing deepgp_fss with its development tools (a few minutes, several GB, once)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

install: $(VENV)/.installed  ## create .venv and install everything into it

demo: $(VENV)/.installed  ## the main job on generated data; figures go to figures/
	@echo "== segmenting a generated scene"
	$(BIN)/deepgp_demo

test: check test-nbs test-py  ## all checks and tests, on a fresh machine too
	@echo "== all passed"

check: $(VENV)/.installed  ## module and README match the notebooks, notebooks are clean
	@echo "== checking that module, README and notebooks agree"
	$(BIN)/python .ci/check.py

test-nbs: $(VENV)/.installed  ## run the tests in every notebook
	@echo "== running the notebooks"
	OMP_NUM_THREADS=1 PATH=$(BIN):$$PATH $(BIN)/nbdev_test --n_workers $(CORES) --do_print --pause 0.1

test-py: $(VENV)/.installed  ## run tests/ with pytest
	@echo "== running pytest"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(CORES) tests

notebooks: $(VENV)/.installed  ## execute the notebooks and keep their outputs, then export and clean
	$(BIN)/python .ci/notebooks.py
	$(BIN)/nbdev_clean && $(BIN)/nbdev_export

readme: $(VENV)/.installed  ## README.md from nbs/index.ipynb
	$(BIN)/python .ci/readme.py

lab: $(VENV)/.installed  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab --ip=127.0.0.1 $$([ "$$(id -u)" != 0 ] || echo --allow-root) nbs

hooks: $(VENV)/.installed  ## nbdev's git hooks: clean notebooks on save and commit, merge them cell by cell
	$(BIN)/nbdev_install_hooks

clean:  ## remove what was installed and built
	rm -rf $(VENV) _proc _docs build dist *.egg-info .pytest_cache .hypothesis
