# Everything starts from a machine that has Python >= 3.10 and make. `make help` lists what there is.
VENV   ?= .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
# One thread per worker, as many workers as cores: faster than two workers fighting for all of them.
CORES  := $(shell $(PYTHON) -c 'import os; print(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())')
THREADS ?= 1
COMMA := ,
# Notebooks and tests run without a network: a hidden download fails.
NOWHERE := http://127.0.0.1:9

.DEFAULT_GOAL := help
.PHONY: help install demo evidence survives test check test-nbs test-py test-cpus test-lowest test-browser pages notebooks readme architecture docs lab hooks clean

help:  ## what you can do here
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

$(VENV)/.installed: settings.ini setup.py
	@$(PYTHON) --version > /dev/null 2>&1 || { echo "There is no $(PYTHON) here: name another one, such as make PYTHON=python3.12 (test-lowest: LOWEST_PYTHON=...)."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "deepgp_fss needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) --version). Name another one: make PYTHON=python3.12"; exit 1; }
	@echo "== creating $(VENV) and installing deepgp_fss with its development tools (a few minutes, several GB, once)"
	$(PYTHON) -m venv $(VENV)
	$(if $(LOWEST),$(PYTHON) .ci/lowest.py > $(VENV)/lowest.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(LOWEST),-c $(VENV)/lowest.txt -e '.[dev$(COMMA)timm$(COMMA)tensorboard$(COMMA)bench]',-e '.[dev]')
	@touch $@

install: $(VENV)/.installed  ## create .venv and install everything into it

demo: $(VENV)/.installed  ## train and evaluate on generated data, in minutes; figures go to figures/
	$(BIN)/deepgp_demo

evidence: $(VENV)/.installed  ## the paper's claims tested on generated data: two hours on two cores; resumes after an interruption
	$(BIN)/deepgp_study shapes --out runs/evidence

survives: $(VENV)/.installed  ## faults, stress, load, bad input: run their tests, and write what they found into nbs/results for the docs
	OMP_NUM_THREADS=1 DEEPGP_RESULTS=nbs/results $(BIN)/python -m pytest -q -n $(CORES) --dist worksteal tests/test_faults.py tests/test_stress.py tests/test_load.py tests/bad_input

test: check test-nbs test-py docs  ## all checks and tests, on a fresh machine too
	@echo "== all passed"

check: $(VENV)/.installed  ## lines, names and imports; module and README match the notebooks, notebooks are clean
	@echo "== checking lines and names"
	$(BIN)/ruff check nbs deepgp_fss tests .ci setup.py
	@echo "== checking that no module imports a later one"
	$(BIN)/python .ci/imports.py
	@echo "== checking that module, README and notebooks agree"
	$(BIN)/python .ci/check.py

test-nbs: $(VENV)/.installed  ## run the tests in every notebook
	@echo "== running the notebooks"
	DEEPGP_FIGURES=$(abspath $(VENV))/figures http_proxy=$(NOWHERE) https_proxy=$(NOWHERE) OMP_NUM_THREADS=$(THREADS) PATH=$(BIN):$$PATH $(BIN)/nbdev_test --n_workers $(CORES) --do_print --pause 0.1

$(VENV)/.browser: $(VENV)/.installed
	@echo "== adding voila and playwright"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[browser]'
	@touch $@

test-browser: $(VENV)/.browser  ## drive the tutorials in a real browser; needs Chromium; screenshots in figures/browser/
	@command -v chromium > /dev/null || command -v chromium-browser > /dev/null || command -v google-chrome > /dev/null || { echo "There is no Chromium here: install it first, such as with apt-get install chromium fonts-dejavu-core."; exit 1; }
	$(BIN)/python -m pytest -q tests/browser

pages: $(VENV)/.browser  ## the tutorials as web pages on this machine, with voila
	$(BIN)/voila --no-browser --Voila.ip=127.0.0.1 nbs/tutorials

test-py: $(VENV)/.installed  ## run tests/ with pytest
	@echo "== running pytest"
	OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -q -n $(CORES) --dist worksteal tests

# What a CPU can do changes the last digits, and so may the number of threads: no test may depend on either.
CPUS := ATEN_CPU_CAPABILITY=default,ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 THREADS=2,CORES=1
test-cpus: $(VENV)/.installed  ## notebooks and tests again, computed as older CPUs would, and with two threads; an hour
	@for cpu in $(CPUS); do echo "== as with $$cpu"; $(MAKE) test-nbs test-py $$(echo $$cpu | tr , ' ') || exit 1; done
	@echo "== all passed, on every CPU"

# The lower bounds of settings.ini are promises, too. Wheels that old exist for Python 3.10 and 3.11.
LOWEST_PYTHON ?= python3.10
test-lowest:  ## everything again with the oldest versions that settings.ini allows; needs Python 3.10
	$(MAKE) test VENV=.venv-lowest PYTHON=$(LOWEST_PYTHON) LOWEST=yes

notebooks: $(VENV)/.installed  ## execute the notebooks and keep their outputs, then export and clean
	$(BIN)/python .ci/notebooks.py
	$(BIN)/nbdev_clean && $(BIN)/nbdev_export

readme: $(VENV)/.installed  ## README.md from nbs/index.ipynb
	$(BIN)/python .ci/readme.py

architecture: $(VENV)/.installed  ## figures/architecture.*, the picture of which notebook is which box
	$(BIN)/python .ci/architecture.py

docs: $(VENV)/.installed  ## the notebooks as a web site in _docs/; start at _docs/index.html
	@echo "== building the site and following its links"
	OMP_NUM_THREADS=1 $(BIN)/python .ci/docs.py

lab: $(VENV)/.installed  ## JupyterLab on the notebooks
	$(BIN)/jupyter lab --ip=127.0.0.1 $$([ "$$(id -u)" != 0 ] || echo --allow-root) nbs

hooks: $(VENV)/.installed  ## nbdev's git hooks: clean notebooks on save and commit, merge them cell by cell
	$(BIN)/nbdev_install_hooks

clean:  ## remove what was installed and built
	rm -rf $(VENV) .venv-lowest _proc _docs build dist *.egg-info .pytest_cache .hypothesis
