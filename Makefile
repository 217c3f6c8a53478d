# Everything a newcomer needs: `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export OPENBLAS_NUM_THREADS = 1
# Tests start hundreds of processes: each would compile every module again.
export PYTHONDONTWRITEBYTECODE =

NATIVE := $(shell find fss protocols -name '_*.c' -o -name '*.h')

.PHONY: setup demo check test mutants printed chaos soak fuzz compose-test chromium browser-test ray-test wheel-test docs lint protos protos-check bench clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml setup.py constraints.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing what tests need into $(VENV): some minutes'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.usable $@

# What the demo needs, and no more.
$(VENV)/.usable: pyproject.toml setup.py constraints.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo 'installing into $(VENV): a minute or two'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

demo: $(VENV)/.usable
	@$(BIN)/tally demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# While editing, about a minute: lint, types, and the quick tests of what holds the rest together.
# `make check TESTS=tests/protocols/vdaf` has those of another room; `pyproject.toml` names the slow
# kinds, which are left out.
TESTS ?= tests/test_*.py tests/contracts tests/protocols/run tests/protocols/statistics tests/storage tests/simulation
check: lint
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow and not e2e and not statistical' $(TESTS)

# Three workers on two cores: many tests wait for processes of their own.
# A browser is driven by an event loop of its own, which other tests cannot share a process with.
test: lint protos-check chromium
	$(BIN)/pytest -n 2 tests/browser
	$(BIN)/pytest -n 3 --dist worksteal --ignore tests/browser --ignore tests/ray
	$(BIN)/python -m tests.mutants.run tenth
	@echo 'not run here: tests of --runtime ray, which start a cluster (make ray-test)'

# Takes away, one at a time, the lines that privacy and safety hang on, and sees for each that its test
# fails: tests/mutants/table.txt. Some minutes for all of them; `make mutants MUTANTS=ledger` has those
# that mention a word. `make test` runs a tenth, another one each day.
MUTANTS ?=
mutants: setup
	$(BIN)/python -m tests.mutants.run $(MUTANTS)

# Every command that README and docs print, as it is printed: those too that take minutes.
printed: setup
	TALLY_PRINTED=all $(BIN)/pytest -n 2 --dist worksteal tests/test_documents.py

# Does harm to a random process at a random moment of a run: kills it, tells it to stop, has it stand
# still, fills its disk, holds its ledger. Three hundred times; `make chaos ROUNDS=50` for fewer.
ROUNDS ?= 300
chaos: setup
	$(BIN)/python -m tests.e2e.chaos $(ROUNDS)

# A federation of its own, asked and troubled for so many minutes; then everybody's bounds.
MINUTES ?= 10
soak: setup
	$(BIN)/python -m tests.soak.soak $(MINUTES)

# Seconds for each target; the same targets run for a moment in `make test`. All of them, unless
# FUZZ_TARGETS names some.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $$($(BIN)/python -m tests.fuzz.targets)
fuzz: setup
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet atheris
	@for target in $(FUZZ_TARGETS); do \
		$(BIN)/python -m tests.fuzz.run $$target $(FUZZ_SECONDS) 2>fuzz.log || { cat fuzz.log; exit 1; }; \
		echo "$$target: $$(sed -n 's/^stat::number_of_executed_units: *//p' fuzz.log) executions"; \
	done; rm -f fuzz.log

# On a machine with a docker engine, or where root can install one; skips with a reason elsewhere.
compose-test: setup
	$(BIN)/python -m tests.compose.run

# The page is tested in a headless Chromium, installed from Debian's packages where root may do so.
chromium:
	@command -v chromium >/dev/null \
		|| { [ "$$(id -u)" = 0 ] && { apt-get -qq update && apt-get -qq install -y chromium; } >/dev/null 2>&1; } \
		|| echo "no Chromium, and it cannot be installed here: the browser tests skip"

# The tests of the page, and the documentation's screenshots. `make test` runs the same tests.
browser-test: setup chromium
	TALLY_SCREENSHOTS=docs/images $(BIN)/pytest -n 0 -rs tests/browser

# `--runtime ray` and sweeps on a cluster: two real nodes on the loopback, one of which is lost. It
# takes two minutes, most of them to start and to notice, so `make test` leaves it out and says so.
ray-test: setup
	$(BIN)/pytest -n 0 -rs tests/ray

# The wheel, built with and without a compiler and used where there is no checkout.
wheel-test: setup
	$(BIN)/python -m tests.wheel.run

# The site, from docs/ and docstrings, into build/site.
docs: setup
	@$(BIN)/python -c 'import furo, myst_nb, sphinx' 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site

protos: setup
	$(BIN)/python protos/generate.py

protos-check: setup
	$(BIN)/python protos/generate.py --check

bench: setup
	$(BIN)/tally bench all

clean:
	rm -rf $(VENV) build *.egg-info
	find fss protocols -name '*.so' -delete
