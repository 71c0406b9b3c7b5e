# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is imported is compiled then; compiling all of torch at once takes half of the set-up.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt

.PHONY: demo test check fix bench mutate clean page browser trainers worlds engines docs pictures prices dist

demo: $(VENV)/.train
	$(BIN)/counterpoint demo

# Three at a time, also on two cores: a tenth of the time a test waits for a disk, a browser or a limit. Whole files, the longest
# first (tests/conftest.py).
test: $(VENV)/.dev web/node_modules/.done browser
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# The viewer's page, built into the package. Its source is in web/; users never need Node.
page: $(VENV)/.dev web/node_modules/.done
	$(BIN)/python -m counterpoint.app.viewer.typescript > web/src/shapes.gen.ts
	cd web && npm run --silent build

# What the tests of the page need: Node for its own tests, Chromium for the journeys. Where they cannot be had, those tests are skipped and say so.
# (`npm ci` refuses a lock file without the binaries of machines that the registry here does not have; --no-save keeps the lock as it is.)
web/node_modules/.done: web/package.json web/package-lock.json
	@{ command -v npm >/dev/null && (cd web && npm install --no-save --silent --no-audit --no-fund && touch node_modules/.done); } || \
	  echo "note: npm is not here, or could not install the page's packages: the page's own tests and build are skipped"

browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get update -qq; apt-get install -y -qq chromium; } >/dev/null 2>&1; } || \
	  echo "note: there is no chromium here and it cannot be installed, so the journeys of the page are skipped"

check: $(VENV)/.check
	$(BIN)/ruff check src tests benchmarks examples tools
	$(BIN)/mypy

fix: $(VENV)/.check
	$(BIN)/ruff check --fix src tests benchmarks examples tools

# The documentation site, into site/: pages, journeys, notebooks, the commands' help and the API from docstrings, with search. Built without a
# network; a link or an anchor that leads nowhere, or a page that is not in the nav, fails it. Read it with: python3 -m http.server -d site
docs: $(VENV)/.docs
	$(BIN)/python tools/docs_site.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote site/index.html"

# The pictures of the README and the site, made from the demo in a headless browser.
pictures: $(VENV)/.dev browser
	$(BIN)/python tools/pictures.py

# The package's list of what models cost, from the newest genai-prices. `make dist` does it too.
prices: $(BIN)/python
	$(PIP) --upgrade -e '.[prices]'
	$(BIN)/python tools/prices.py

# Wheel and sdist in dist/, each installed and tried in an environment of its own; the extras are resolved, not installed.
dist: $(BIN)/python
	$(BIN)/python tools/release.py

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# The contracts with other people's trainers, each in an environment of its own with the real package. Not a part of `make test`.
# (Of the versions tested together only torch is asked for: packages of trainers pin others of their own.)
TRAINERS ?= trl verl tinker tinker-cookbook verifiers agentlightning art
trainers:
	@mkdir -p .venvs && grep '^torch==' constraints.txt > .venvs/torch.txt
	for p in $(TRAINERS); do \
	  $(PYTHON) -m venv .venvs/$$p && \
	  .venvs/$$p/bin/python -m pip install --quiet --disable-pip-version-check -c .venvs/torch.txt -e ".[$$p]" pytest hypothesis && \
	  .venvs/$$p/bin/python -m pytest tests/lab/trainers || exit 1; \
	done

# Worlds of packages, each in an environment of its own with the real package: the contract and the tests that are skipped elsewhere.
# Not a part of `make test`.
WORLDS ?= dpbench pettingzoo textarena reasoning-gym agentdojo maseval verifiers
worlds:
	@mkdir -p .venvs && grep '^torch==' constraints.txt > .venvs/torch.txt
	for p in $(WORLDS); do \
	  $(PYTHON) -m venv .venvs/$$p && \
	  .venvs/$$p/bin/python -m pip install --quiet --disable-pip-version-check -c .venvs/torch.txt -e ".[$$p]" pytest hypothesis && \
	  .venvs/$$p/bin/python -m pytest tests/lab/worlds/test_packages.py tests/lab/worlds/test_package_games.py || exit 1; \
	done

# Runs on a real vLLM, whose executable VLLM names. Not a part of `make test`.
VLLM ?= vllm
engines: $(VENV)/.dev
	COUNTERPOINT_VLLM=$(VLLM) $(BIN)/python -m pytest tests/lab/train/lm/test_real_vllm.py

# Would the tests notice? Random mutants of a module (store/log) or a room (trace), in a copy; see CONTRIBUTING.md. Not a part of `make test`.
MODULE ?= trace/check
N ?= 40
SEED ?= 0
mutate: $(VENV)/.mutate
	$(BIN)/python tools/mutate.py $(MODULE) -n $(N) --seed $(SEED) $(if $(JSON),--json $(JSON)) $(if $(TESTS),--tests $(TESTS))

clean:
	rm -rf $(VENV) site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Counterpoint needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.train: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[train,plot,view]'
	@touch $@ $(VENV)/.core

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.train $(VENV)/.core

$(VENV)/.check: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev,check]'
	@touch $@ $(VENV)/.dev $(VENV)/.train $(VENV)/.core

$(VENV)/.bench: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev,bench]'
	@touch $@ $(VENV)/.dev $(VENV)/.train $(VENV)/.core

$(VENV)/.docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[docs]'
	@touch $@ $(VENV)/.core

$(VENV)/.mutate: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev,mutate]'
	@touch $@ $(VENV)/.dev $(VENV)/.train $(VENV)/.core
