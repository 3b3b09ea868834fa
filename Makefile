# make demo: install and run the whole way.   make check: lint, types, import contract.
# make real: the same on a real chat model of 135 M parameters (docs/real-model.md), in 22 minutes on two cores;
# make real BUDGET=30m: what of it fits into half an hour.   make untouched: Qwen2.5-Coder-0.5B-Instruct as it was released, cut to
# 75 minutes or BUDGET.   make gpu: correctness and speed on a GPU, within nine minutes.
# make test-vllm: dials inside vLLM, in an environment of its own (VLLM, 3.9 GB), and what they cost; VLLM_TESTS="not slow"
# VLLM_SIZE=--quick takes three minutes once the environment is there.
# make bench: quick benchmarks against the last recorded run, naming what got worse; RECORD=1 records this one.
# make site: the pages of docs/ as a site with search, into build/site; a link or an anchor that leads nowhere ends it.
# make test: the tests but for whole runs, the rest of large matrices, and simulations; make test-all: those too, as CI
# runs it. They are divided among WORKERS processes (python -m pytest runs any part of it in one). make shapes: the tests
# of probes/ with the shapes of arrays checked against their annotations, which takes about half as long again.
PYTHON ?= python3.11
BIN := .venv/bin
WORKERS ?= 2
VLLM ?= .venv-vllm
VLLM_TESTS ?= slow or not slow
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
unexport PYTHONDONTWRITEBYTECODE # each process that tests start would compile everything it imports

.PHONY: demo real untouched gpu bench site test test-all test-vllm shapes check clean

demo: .venv/installed
	$(BIN)/refusal run configs/quickstart.yaml

real: .venv/installed
	$(BIN)/refusal run configs/real.yaml $(if $(BUDGET),--budget $(BUDGET) --out runs/real-$(BUDGET))

untouched: .venv/installed
	$(BIN)/refusal run qwen2.5-coder-0.5b --budget $(or $(BUDGET),75m) --out runs/untouched$(BUDGET:%=-%)

gpu: .venv/installed
	$(BIN)/python -m benchmarks.gpu

bench: .venv/installed
	$(BIN)/python -m benchmarks.bench $(if $(RECORD),--record)

site: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: .venv/installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not simulation"

test-all: .venv/installed
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

shapes: .venv/installed
	$(BIN)/python -m pytest -n $(WORKERS) -p tests.support.shapes tests/probes -m "not slow"

check: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test-vllm: $(VLLM)/installed
	$(VLLM)/bin/python -m pytest tests/vllm -n $(WORKERS) --dist worksteal -m "$(VLLM_TESTS)" -p no:cacheprovider
	$(VLLM)/bin/python -m benchmarks.in_vllm $(VLLM_SIZE)

$(VLLM)/installed: pyproject.toml constraints-vllm.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet --requirement constraints-vllm.txt
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv runs build
