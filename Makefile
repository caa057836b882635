# `make` alone lists what there is to make.

SCALE       ?= published
ARGS        ?=
CONFIG      ?=
# The interpreter that .venv is made with.
BASE_PYTHON ?= python3
# The interpreter of the GPU tests and of Horovod: a machine with its own torch says `make test-gpu PYTHON=python3` and
# needs no .venv.
PYTHON      ?= .venv/bin/python

PY  := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Debian and Ubuntu keep `python3 -m venv` in a package of its own.
VENV_PACKAGE := $(notdir $(BASE_PYTHON))-venv
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help env book pages test test-jobs test-browser test-demos test-ranks test-others test-gpu test-faults horovod lint lock environment clean browser slurm compiler kernel hub proxy

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: .venv/.stamp ## Make .venv with the exact versions of requirements.lock

kernel: .venv/.stamp ## Offer .venv to any JupyterLab of this user, as the kernel "dolb"
	$(PY) -m ipykernel install --user --name dolb --display-name dolb

hub: .venv/.stamp proxy ## Start a JupyterHub for accounts of this machine (as root; DOLB_HUB_USERS="ada grace"; CONFIG=slurm)
	$(PY) -m jupyterhub --config deploy/jupyterhub/jupyterhub_config$(CONFIG:%=_%).py

book: .venv/.stamp ## Build the book and say where it is (SCALE=published|demo|paper)
	.venv/bin/dolb book --scale $(SCALE)

pages: .venv/.stamp ## Renew the pages and the picture that are made from the claims and the results
	.venv/bin/dolb pages

# Without ARGS four parts run at a time, each with a thread for its arithmetic (and for t-SNE's, by the second name). Tests of
# clusters and hubs come first, as they wait most of the time, and those with a browser when these have ended.
WITH_JOBS = tests/cluster tests/hub
WITH_BROWSER = tests/browser
DEMOS = tests/test_notebooks_demo.py
WITH_RANKS = tests/profiling tests/publishing tests/test_cli.py tests/test_notebooks_ranks.py
PART = OMP_NUM_THREADS=1 LOKY_MAX_CPU_COUNT=1 $(PY) -m pytest -p no:cacheprovider
test: .venv/.stamp browser slurm proxy ## Run the tests (ARGS="-k batch" reaches pytest)
	$(if $(ARGS),$(PY) -m pytest $(ARGS),$(MAKE) --no-print-directory -j4 test-jobs test-ranks test-others test-demos test-browser)

test-jobs: .venv/.stamp
	$(PART) $(WITH_JOBS)

test-browser: .venv/.stamp
	$(PART) $(WITH_BROWSER)

test-demos: .venv/.stamp
	$(PART) $(DEMOS)

test-ranks: .venv/.stamp
	$(PART) $(WITH_RANKS)

test-others: .venv/.stamp
	$(PART) $(addprefix --ignore=,$(WITH_JOBS) $(WITH_BROWSER) $(DEMOS) $(WITH_RANKS))

test-gpu: $(if $(filter $(PY),$(PYTHON)),.venv/.stamp) ## Run the tests that need a CUDA device (PYTHON=python3 uses that one)
	$(PYTHON) -m pytest -m gpu tests/training tests/kernels tests/profiling tests/cluster tests/test_augment.py tests/test_gpu_step.py $(ARGS)

FAULTS ?= 200
test-faults: .venv/.stamp ## Run the tests of what is survived, with many more kills and damaged files than in `make test` (FAULTS=200)
	DOLB_FAULTS=$(FAULTS) $(PY) -m pytest -m faults $(ARGS)

horovod: $(if $(filter $(PY),$(PYTHON)),.venv/.stamp) ## Install Horovod, built from source once for this torch (PYTHON=python3 uses that one)
	deploy/horovod.sh $(PYTHON)

lint: .venv/.stamp ## Check style, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

# Not from .venv/.stamp: a lock that cannot be installed must still be replaceable.
lock: | $(PY) ## Renew requirements.lock and environment.yml from pyproject.toml (ARGS=--upgrade moves every pin)
	$(PY) -c 'import uv' 2>/dev/null || $(PIP) install uv
	$(PY) -m uv pip compile pyproject.toml --output-file requirements.lock --quiet $(ARGS)
	$(MAKE) --no-print-directory environment

environment: | $(PY) ## Renew environment.yml from pyproject.toml and requirements.lock
	$(PY) -c 'import packaging' 2>/dev/null || $(PIP) install packaging
	$(PY) deploy/environment.py > environment.yml.new
	mv environment.yml.new environment.yml

clean: ## Remove what was built; .venv, data and the run store stay
	rm -rf _build .pytest_cache .mypy_cache .ruff_cache environment.yml.new
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.stamp: requirements.lock pyproject.toml | $(PY) compiler
	$(PIP) install -r requirements.lock
	$(PIP) install --no-deps -e .
	touch $@

$(PY):
	@$(BASE_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "dolb needs Python 3.11 or later; $(BASE_PYTHON) is $$($(BASE_PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make env BASE_PYTHON=python3.12" >&2; exit 1; }
	@$(BASE_PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(APT) update && $(APT) install -y $(VENV_PACKAGE) >/dev/null; \
	  else \
	    echo "$(BASE_PYTHON) cannot make virtual environments. On Debian or Ubuntu: sudo apt-get install $(VENV_PACKAGE)" >&2; exit 1; \
	  fi; }
	$(BASE_PYTHON) -m venv --clear .venv

# openTSNE has wheels for x86-64 Linux, macOS and Windows; elsewhere pip compiles it.
compiler:
	@if [ "$$(uname -s)" = Linux ] && [ "$$(uname -m)" != x86_64 ] && ! { command -v g++ >/dev/null && \
	  $(BASE_PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'; }; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(APT) update && $(APT) install -y g++ $(notdir $(BASE_PYTHON))-dev >/dev/null; \
	  else \
	    echo "On this machine openTSNE must be compiled. On Debian or Ubuntu: sudo apt-get install g++ $(notdir $(BASE_PYTHON))-dev" >&2; exit 1; \
	  fi; \
	fi

# Without a browser the tests that need one are skipped, unless DOLB_REQUIRE names it.
browser:
	@found=; for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && found=1; done; \
	if [ -z "$$found" ] || ! command -v chromedriver >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(APT) update && $(APT) install -y --no-install-recommends chromium chromium-driver >/dev/null; \
	  else false; \
	  fi || echo "No Chromium with its driver, and no way to install them here: browser tests will be skipped."; \
	fi

# So with Slurm; one that is installed is left as it is, and tests start one of their own.
slurm:
	@if ! command -v sbatch >/dev/null || ! PATH=$$PATH:/usr/sbin command -v munged >/dev/null; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    $(APT) update && $(APT) install -y --no-install-recommends slurm-wlm munge >/dev/null; \
	  else false; \
	  fi || echo "No Slurm with munge, and no way to install them here: tests of clusters will be skipped."; \
	fi

# The hub's proxy, in a folder that git ignores.
proxy:
	@if [ ! -e deploy/jupyterhub/node_modules/.bin/configurable-http-proxy ]; then \
	  npm install --silent --no-save --prefix deploy/jupyterhub configurable-http-proxy@5.3.0 >/dev/null || \
	  echo "No proxy for the hub: it comes by npm (on Debian or Ubuntu: apt-get install npm). Tests of it will be skipped."; \
	fi
