# make demo | test | bench | bench-fixtures | bench-floor | bench-power | bench-power-full | clean. Each installs what it needs into .venv first (tools/install.sh), once.
#   PYTHON=python3.12                    another interpreter (default: the first of 3.11, 3.12, 3.10 that works)
#   TORCH_INDEX=https://...              the index that torch alone comes from: name one with CPU builds for a small installation
#   TORCH=torch==2.13.0                  another torch
#   JOBS=2                               test processes
PYTHON ?=
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
JOBS ?= 2
VENV := .venv
RUN := $(VENV)/bin/python -m
export PYTHON TORCH TORCH_INDEX VENV

.PHONY: demo test lint bench bench-fixtures bench-floor bench-regions bench-power bench-power-full install clean
demo: install
	@$(VENV)/bin/python tools/demo.py

test: lint
	$(RUN) pytest -n $(JOBS)

lint: install
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy --strict verify

bench: install # speed and reach against targets and peers, about three minutes
	@$(VENV)/bin/python benchmarks/speed.py; first=$$?; $(VENV)/bin/python benchmarks/reach.py && exit $$first

bench-regions: install # what honest builds show beyond the roundings that are replayed: verify/floor/allowance.py
	@$(VENV)/bin/python benchmarks/regions.py

bench-fixtures: install # what every fixture costs, earns and measures honestly, about a quarter of an hour
	@$(VENV)/bin/python benchmarks/fixtures.py
	@$(VENV)/bin/python benchmarks/honest.py

bench-power: install # faults compiled by the toolkit and honest builds, a few of each kind, some four minutes
	@$(VENV)/bin/python benchmarks/power.py

bench-power-full: install # all of them, hours; goes on where it was stopped (benchmarks/power.py --full --minutes 60)
	@$(VENV)/bin/python benchmarks/power.py --full

install:
	@bash tools/install.sh

clean:
	rm -rf $(VENV) $(VENV).lock .npu-verify .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
