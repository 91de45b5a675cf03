# Each target makes what it needs: a virtual environment with pinned packages, and the jars that Spark and Kafka want.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: run test test-busy test-all test-newest test-lowest simulate nightly chaos soak bench cluster-test mutants pictures docs docs-tables format clean

run: $(READY)  ## the whole product on this machine, with a demo, until Ctrl-C
	@$(BIN)/coordinator up --observe

JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
# Tests with a real broker and a real query wait now and then, so there is one more of them than cores.
SPREAD = --numprocesses $$(($(JOBS) + 1)) --dist loadfile --no-loadscope-reorder
QUICK := tests/coordinator tests/deploy tests/docs tests/streaming

test: TIER := not long  ## the checks of the code, and the tests: each promise once, on real parts
test-all: TIER := not nightly  ## the long tests as well: more clients, more kills, more simulations

test test-all: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -m "$(TIER)" --numprocesses $(JOBS) --dist worksteal $(QUICK)
	@$(BIN)/python -m pytest -m "$(TIER)" $(SPREAD) $(QUICK:%=--ignore=%) --durations 10

test-busy: $(READY)  ## `make test` beside two busy processes for each core: nothing may fail because it is slow
	@$(BIN)/python -m tests.busy --tally docs/tallies/busy.json $(MAKE) test

STEPS ?= 1000000
SEED ?= 1

simulate: $(READY)  ## whole worlds of groups, members and faults: make simulate STEPS=100000000 SEED=1
	@$(BIN)/python -m tests.simulation --steps $(STEPS) --seed $(SEED) --jobs $(JOBS)

nightly: $(READY)  ## what takes too long for every change: whole matrices, long conversations, ten times the simulations
	@$(BIN)/python -m pytest -m nightly $(SPREAD) --durations 10
	@NIGHTLY=1 $(BIN)/python -m pytest tests/coordinator/test_group_machine.py tests/simulation

test-newest test-lowest: $(READY)  ## all tests with the newest (lowest) packages that pyproject.toml allows, on each Python here; PART=quick: those without a broker
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,versions]'
	@$(BIN)/python -m tests.versions $(@:test-%=%) $(addprefix --,$(PART)) --tally docs/tallies/versions.json

bench: $(READY)  ## every figure of docs/figures.md, measured on this machine
	@$(BIN)/python -m tests.benchmarks $(BENCH)

chaos: $(READY)  ## kill, pause and restart everything for MINUTES=20 while members consume; SEED=... repeats a plan
	@$(BIN)/python -m tests.chaos --minutes $(or $(MINUTES),20) $(if $(filter command environment,$(firstword $(origin SEED))),--seed $(SEED))

SOAK = $(BIN)/python -m $(if $(filter kills takeovers moves brokers,$(KIND)),tests.chaos --$(KIND) 1000,tests.power $(KIND))

soak: $(READY)  ## MINUTES=25 of losses of power, turned bits, kill -9, take-overs, moves or faults of brokers, added to a tally: make soak KIND=power|bits|kills|takeovers|moves|brokers
	@$(if $(filter power bits kills takeovers moves brokers,$(KIND)),,echo "Name what: make soak KIND=power, bits, kills, takeovers, moves or brokers"; exit 2)
	@$(SOAK) --minutes $(or $(MINUTES),25) --tally docs/tallies/$(KIND).json

cluster-test: $(READY)  ## a standalone cluster whose executor, worker and driver are killed; then heartbeats/s on 1 and 2
	@$(BIN)/python -m pytest tests/cluster -s
	@$(BIN)/python -m tests.benchmarks.scaling

mutants: $(READY)  ## change the core in 6,400 small ways, and count what the tests notice: some 45 minutes
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,mutants]'
	@$(BIN)/mutmut run
	@$(BIN)/mutmut results

pictures: $(READY)  ## the pictures of the documents, taken of the demo in a browser (Chromium) and a terminal
	@$(BIN)/python -m tests.pictures

docs: $(READY)  ## the pages as a site in build/docs; a warning is an error
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,docs]'
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --nitpicky --quiet --builder html docs build/docs
	@echo "Open build/docs/index.html"

docs-tables: $(READY)  ## write the defaults of all settings into docs/settings.md, and the tables of docs/sizing.md and docs/gateway.md
	@$(BIN)/python -m tests.docs.settings_table
	@$(BIN)/python -m tests.docs.sizing_tables
	@$(BIN)/python -m tests.docs.heartbeat_table

format: $(READY)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis mutants build dist

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"Python 3.11 or newer is needed; name it: make PYTHON=python3.11 (this is %d.%d)" % sys.version_info[:2])'
	@$(PYTHON) -m venv $(VENV) || { echo "Python cannot make a virtual environment: install its venv package."; exit 1; }
	@echo "Installing packages (once; a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	@$(BIN)/coordinator prepare >/dev/null || echo "Going on without; Spark takes longer to start."
	@touch $@
