# Two commands do all the set-up: `make demo` and `make test`. Both create and reuse .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test test-long test-gpu lint docs reference bench bench-gpu clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[demo]'
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/graphdnn demo

# One BLAS thread for each of the test processes: two would wait for each other.
test: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) -m 'not long and not gpu'

# Timings among them: one process, on a quiet machine.
test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -s -m 'long and not gpu'

# Needs a GPU and CuPy: `make test-gpu GPU_PYTHON=python3`. Side by side where Python has pytest-xdist: one process draws
# problems and starts others for the cores that are left. Timings of pytest-benchmark are none of it.
GPU_PYTHON ?= $(BIN)/python
GPU_JOBS ?= 6
SIDE_BY_SIDE = $(shell $(GPU_PYTHON) -c "import xdist" 2>/dev/null && echo "-n $(GPU_JOBS) --dist loadgroup" || echo "-s")
test-gpu: export OPENBLAS_NUM_THREADS = 1
test-gpu:
	$(GPU_PYTHON) -m pytest -p no:benchmark -m 'gpu and not alone' $(SIDE_BY_SIDE) tests/gpu; first=$$?; \
	$(GPU_PYTHON) -m pytest -p no:benchmark -m 'gpu and alone' -s tests/gpu && exit $$first

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The generated pages and the API reference, which is plain HTML: docs/_build/reference/index.html.
docs: $(VENV)/.dev reference
	$(BIN)/python docs/generate.py

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

# A warning of Sphinx is an error.
reference: $(VENV)/.docs
	$(BIN)/python docs/reference/build_reference.py

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/host_overhead.py
	$(BIN)/python benchmarks/host_convolution.py

# Needs a GPU and PyTorch; run with the Python that has them: `make bench-gpu GPU_PYTHON=python3`.
bench-gpu:
	$(GPU_PYTHON) benchmarks/gpu.py $(BENCH_GPU)

clean:
	rm -rf $(VENV) docs/_build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
