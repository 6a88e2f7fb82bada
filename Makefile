# make demo    the complete path: pack the example for aarch64 and this machine, run it, measure it
# make test    the complete tests        make lint    ruff and mypy
# make stubs   the static executables that plans are appended to, for all architectures
# make bench   speed beside onnxruntime, interleaved: the example, and the models in $EDGERUN_CORPUS
# make fuzz    ten minutes of mutated plans against the validator, under guard pages; the pool under TSan
# make wheel   dist/*.whl with the stubs inside
#
# Needs Debian or Ubuntu with Python 3.11 or newer. Everything is installed into .venv; stamp files in it keep repeated
# calls quick. PYTHON=python3.12 chooses another interpreter, VENV another place.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARCHES ?= aarch64 armv7 riscv64 x86_64

BIN := $(VENV)/bin
RUN := $(BIN)/python
STUBS := packaging/edgerun_packaging/stubs
SOURCES := $(shell find edgerun/backends/native/csrc packaging/edgerun_packaging -name '*.[ch]' -o -name '*.def' -o -name 'zig.py')

.PHONY: help setup demo test lint format stubs bench fuzz wheel clean
help:
	@sed -n 's/^# \?//p' Makefile | sed '/^$$/q'

setup: $(VENV)/installed
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "edgerun needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "the venv module is missing: sudo apt install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

stubs: $(VENV)/stubs
$(VENV)/stubs: $(VENV)/installed $(SOURCES)
	$(RUN) -m edgerun_packaging.stubs $(ARCHES)
	@touch $@

demo: $(VENV)/stubs
	@PATH="$(abspath $(BIN)):$$PATH" $(RUN) examples/digits/demo.py

test: $(VENV)/stubs
	$(RUN) -m pytest -n $(JOBS) tests

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy edgerun converters/edgerun_converters packaging/edgerun_packaging targets/edgerun_targets

format: $(VENV)/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/stubs
	$(RUN) -m benchmarks.compare --peers edgerun,onnxruntime --threads 1,2

FUZZ_SECONDS ?= 300
fuzz: $(VENV)/installed
	$(RUN) -m tests.native.sanitize fuzz $(FUZZ_SECONDS)
	$(RUN) -m tests.native.sanitize pool

wheel: $(VENV)/stubs
	$(RUN) -m edgerun_packaging.zig host
	$(RUN) -m edgerun_packaging.stubs $(ARCHES:%=%:shared) $(ARCHES:%=%:static) wasm32:wasm
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf build dist $(STUBS) $(VENV)/stubs $(VENV)/installed
