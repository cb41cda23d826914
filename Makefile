# Two commands do all the set-up: `make demo` and `make test`. Both create and reuse .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: demo test test-long test-gpu lint package attack release-gpu docs reference bench bench-gpu clean

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

# Hours: drawn input against every API and every file that is read. A part of it: make attack ATTACK="--share 0.01".
attack: export OPENBLAS_NUM_THREADS = 1
attack: $(VENV)/.dev
	$(BIN)/python tests/attack/run.py $(ATTACK)

# Needs a GPU and CuPy: `make test-gpu GPU_PYTHON=python3`. Side by side where Python has pytest-xdist: one process draws
# problems and starts others for the cores that are left. Timings of pytest-benchmark are none of it.
GPU_PYTHON ?= $(BIN)/python
GPU_JOBS ?= 6
SIDE_BY_SIDE = $(shell $(GPU_PYTHON) -c "import xdist" 2>/dev/null && echo "-n $(GPU_JOBS) --dist loadgroup" || echo "-s")
test-gpu: export OPENBLAS_NUM_THREADS = 1
test-gpu:
	$(GPU_PYTHON) -m pytest -p no:benchmark -m 'gpu and not alone' $(SIDE_BY_SIDE) tests/gpu; first=$$?; \
	$(GPU_PYTHON) -m pytest -p no:benchmark -m 'gpu and alone' -s tests/gpu && exit $$first

# All that a release says of a GPU, at one commit: tests, 3,000 drawn problems, compute-sanitizer's four tools, figures.
OUT ?= build/release
release-gpu:
	$(GPU_PYTHON) tests/gpu/release.py $(OUT) $(RELEASE)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# What users install: a wheel built from the source distribution, in an environment of its own. The tests are those of
# the source distribution. Its packages are removed, so that nothing but the wheel can be imported.
PACKAGE := build/package
package: $(VENV)/.dev
	rm -rf dist $(PACKAGE)
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) -m venv $(PACKAGE)/venv
	$(PACKAGE)/venv/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(PACKAGE)/venv/bin/graphdnn run 'conv x=f32[2,8,14,14] w=f32[8,8,3,3] pad=1 + relu'
	$(PACKAGE)/venv/bin/python -m pip install --quiet --disable-pip-version-check pytest pytest-xdist hypothesis
	tar -xzf dist/*.tar.gz --strip-components=1 -C $(PACKAGE)
	rm -rf $(PACKAGE)/graphdnn $(PACKAGE)/graphdnn.egg-info $(PACKAGE)/graphdnn_command.py $(PACKAGE)/pytest_graphdnn.py
	cd $(PACKAGE) && OPENBLAS_NUM_THREADS=1 venv/bin/pytest -n $(JOBS) -m 'not long and not gpu' \
		tests/project/test_examples.py tests/builder tests/backend tests/graph tests/files tests/cli tests/plan

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
