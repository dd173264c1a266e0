# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUNS := runs/demo
KERNELS := src/freetickets/kernels

.PHONY: demo test quick smoke lint bench clean

# 2,000 images, a small convolutional network: EDST beside the dense network on PyTorch's kernels and on ours.
DEMO = --model fast-32-64-64 --recipe fast --lr 0.1 --weight-decay 0.001 --train-samples 2000 --seed $(SEED)
SEED ?= 0

demo: $(VENV)/installed-all
	$(BIN)/freetickets train dense $(DEMO) --epochs 25 --backend masked --output $(RUNS)/dense-pytorch
	$(BIN)/freetickets train dense $(DEMO) --epochs 25 --output $(RUNS)/dense-ours
	$(BIN)/freetickets train edst $(DEMO) --epochs 45 --dense-epochs 25 --tickets 3 --sparsity 0.8 --distribution uniform --interval 20 --output $(RUNS)/edst
	$(BIN)/freetickets evaluate $(RUNS)/dense-pytorch --all --samples 500
	$(BIN)/freetickets evaluate $(RUNS)/dense-ours --all --samples 500
	$(BIN)/freetickets evaluate $(RUNS)/edst --all --samples 500
	$(BIN)/freetickets report $(RUNS)/edst $(RUNS)/dense-ours $(RUNS)/dense-pytorch --output $(RUNS)/report.html

# Twice as many workers as CI machines have cores, because many tests wait for processes of their own.
# An idle worker takes tests from others: slow tests stand side by side in files.
# Threads that have nothing to do sleep: by default they spin, and take the cores from other tests.
test quick: export OMP_WAIT_POLICY = passive

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 4 --dist worksteal

# What most changes break. Kernels, reports, experiments, faults and the tests named here take longer: make test.
QUICK = $(addprefix tests/, cli data evaluation methods metrics models sparsity training) $(wildcard tests/test_*.py)
SKIP = killed or ctrl_c or resume or trajectory or reproduce or examples or criteria or timeline or attacks or evaluate
SKIP += or test_trainers or test_loops or test_every_method or test_lock or memory

quick: lint
	$(BIN)/python -m pytest -n 3 --dist worksteal -m 'not slow' -k 'not ($(SKIP))' $(QUICK)

smoke: $(VENV)/installed-all
	$(BIN)/freetickets reproduce all --scale smoke --output $(RUNS)/reproduce

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed-all,bench
	$(BIN)/freetickets bench kernels
	$(BIN)/freetickets bench train
	$(BIN)/freetickets bench infer
	$(BIN)/freetickets bench metrics
	$(BIN)/freetickets bench side-by-side
	$(BIN)/freetickets bench checkpoint

clean:
	rm -rf $(VENV) $(RUNS) build $(KERNELS)/_native.so

# Who has a compiler and works on the package must hear of kernels that do not compile.
COMPILER = $(shell command -v c++ 2>/dev/null)
$(VENV)/installed-dev: export FREETICKETS_REQUIRE_NATIVE ?= $(if $(COMPILER),1)

$(VENV)/installed-%: pyproject.toml constraints.txt CMakeLists.txt $(wildcard $(KERNELS)/native/*)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@
