# `make` prints what there is. Every target works in an environment of its own, .venv; nothing else is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BOARD ?= ice40
EXAMPLE ?= mnist_mlp

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-long lint benchmarks clean

help: ## print this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Byte code is kept: a process of tests, and each command that tests start, would compile all modules again. That of
# packages is made when they are imported: to make all of it takes longer than all other steps of pip.
unexport PYTHONDONTWRITEBYTECODE

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed ## build the example for BOARD (ice40) and run real digits on the virtual board
	$(BIN)/nnhw build --board $(BOARD) --out build/demo-$(EXAMPLE)-$(BOARD) examples/$(EXAMPLE).py
	$(BIN)/python examples/demo.py build/demo-$(EXAMPLE)-$(BOARD)

test: $(VENV)/.installed ## run the tests, lint and types among them, a process of tests per core
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test-fast: $(VENV)/.installed ## run the tests that need no simulator of hardware, no synthesis and no place and route
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m 'not rtl and not synth and not pnr and not slow and not long'

test-long: $(VENV)/.installed ## run the tests that `make test` leaves out: further rows of its tables
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m long

lint: $(VENV)/.installed ## run ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

benchmarks: $(VENV)/.installed ## list the benchmarks
	$(BIN)/python -m benchmarks --list

clean: ## remove the environment and the builds
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache
