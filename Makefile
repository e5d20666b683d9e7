# Needs python3 (3.10 to 3.13) with venv, a C++17 compiler and make; the rest comes from the
# package index into $(VENV).
PYTHON ?= python3
VENV ?= .venv
DEMO_MODEL ?= resnet32
DEMO_BATCH ?= 64
DEMO_STEPS ?= 5
DEMO_BUDGET ?= 40%
PYTEST_ARGS ?=
TEST_JOBS ?= 2

BIN := $(VENV)/bin
# Run from outside the source folder, so that the installed package is the one imported.
STUBGEN = cd $(VENV) && bin/python -m nanobind.stubgen -q -m tvm_dtr._core
CORE_BUILD := build/core-test
SOURCES := pyproject.toml CMakeLists.txt README.md \
  $(shell find cmake src models tvm_dtr -name __pycache__ -prune -o -type f ! -name '*.so' -print)
CPP := $(shell find src tests/core tests/cuda tests/fuzz benchmarks -name '*.h' -o -name '*.cc' 2>/dev/null)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help prerequisites install demo test lint format core-test valgrind cuda-check soak fuzz \
  coverage coverage-build coverage-tests coverage-report clean
.DELETE_ON_ERROR:

help:
	@echo "make demo       train $(DEMO_MODEL) at $(DEMO_BUDGET) of its memory, write demo/"
	@echo "make test       the Python tests, in $(VENV)"
	@echo "make core-test  the C++ tests with address and undefined-behaviour sanitizers"
	@echo "make valgrind   a small set of the C++ tests under valgrind, if there is one"
	@echo "make cuda-check the CUDA sources against the toolkit's header, if there is one"
	@echo "make soak       random programs under random budgets for an hour, resumable"
	@echo "make fuzz       every fuzzer for half an hour in all, resumable"
	@echo "make coverage   lines that the tests reach, in build/coverage"
	@echo "make lint       formatting, lint and types"
	@echo "make format     format Python and C++"
	@echo "make clean      remove what was built"

prerequisites:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "error: '$(PYTHON)' was not found: install Python 3.10 to 3.13 or set PYTHON=..." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || { \
	  echo "error: '$(PYTHON)' is $$("$(PYTHON)" --version 2>&1): Python 3.10 to 3.13 is needed;" \
	       "set PYTHON=python3.12, for example" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "error: '$(PYTHON)' has no venv: install it (on Debian: python3-venv)" >&2; exit 1; }
	@for compiler in "$(CXX)" c++ g++ clang++; do \
	  command -v "$$compiler" >/dev/null 2>&1 && exit 0; done; \
	  echo "error: no C++ compiler was found: install one (on Debian: g++) or set CXX=..." >&2; exit 1

$(BIN)/python: | prerequisites
	@"$(PYTHON)" -m venv "$(VENV)"

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	@echo "installing tvm-dtr and TVM into $(VENV); the first time this takes a minute or two"
	@$(BIN)/pip install --quiet .
	@touch $@

# What only the tests need is half of the download.
$(VENV)/.test: pyproject.toml $(VENV)/.installed
	@echo "installing what the tests need into $(VENV)"
	@$(BIN)/pip install --quiet 'tvm-dtr[test]'
	@touch $@

$(VENV)/.tools: pyproject.toml $(VENV)/.test
	$(BIN)/pip install --quiet 'tvm-dtr[dev]'
	@touch $@

install: $(VENV)/.installed

demo: install
	mkdir -p demo
	$(BIN)/tvm-dtr models make $(DEMO_MODEL) --batch $(DEMO_BATCH) -o demo/$(DEMO_MODEL).onnx
	$(BIN)/tvm-dtr build demo/$(DEMO_MODEL).onnx --loss cross_entropy --optimizer sgd --lr 0.01 \
	  -o demo/$(DEMO_MODEL).tdtr
	$(BIN)/tvm-dtr run demo/$(DEMO_MODEL).tdtr --memory-budget $(DEMO_BUDGET) \
	  --steps $(DEMO_STEPS) --json demo/result.json --plot demo/memory.png --plot demo/memory.svg
	@echo "see demo/memory.png; 'source $(BIN)/activate' for the command tvm-dtr, and README.md for more"

# Files in the order of tests/python/conftest.py, which has the long ones first.
SHARED := -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder

# From outside the source folder, so that the tests and the processes they start import the
# installed package. One thread for each of the processes that share the cores.
test: $(VENV)/.test
	cd $(VENV) && TVM_NUM_THREADS=1 bin/pytest -c $(CURDIR)/pyproject.toml --rootdir $(CURDIR) \
	  $(CURDIR)/tests/python $(SHARED) $(PYTEST_ARGS)

# The committed type stub of _core must be what the installed _core says.
lint: $(VENV)/.tools
	$(STUBGEN) -o $(abspath $(VENV))/_core.pyi
	$(BIN)/ruff format --quiet $(VENV)/_core.pyi
	diff -u tvm_dtr/_core.pyi $(VENV)/_core.pyi || { \
	  echo "error: tvm_dtr/_core.pyi is not what src/bindings says: run 'make format'" >&2; exit 1; }
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP)

format: $(VENV)/.tools
	$(STUBGEN) -o $(abspath tvm_dtr/_core.pyi)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP)

core-test: $(VENV)/.tools
	$(BIN)/cmake -S . -B $(CORE_BUILD) -G Ninja "-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)" \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTVM_DTR_PYTHON=OFF -DTVM_DTR_TESTS=ON \
	  -DTVM_DTR_CHECKS=ON "-DTVM_DTR_SANITIZE=address,undefined"
	$(BIN)/cmake --build $(CORE_BUILD)
	$(BIN)/ctest --test-dir $(CORE_BUILD) --output-on-failure --no-tests=error
	$(BIN)/cmake -S . -B $(CORE_BUILD)-threads -G Ninja \
	  "-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
	  -DTVM_DTR_PYTHON=OFF -DTVM_DTR_TESTS=ON -DTVM_DTR_CHECKS=ON -DTVM_DTR_SANITIZE=thread
	$(BIN)/cmake --build $(CORE_BUILD)-threads --target test_arena_threads
	$(CORE_BUILD)-threads/test_arena_threads

# What valgrind sees and the sanitizers do not: values that nobody wrote. It takes fifty times as long,
# so these are the tests that end soon.
VALGRIND_BUILD := build/valgrind
VALGRIND_TESTS ?= test_best_fit_arena test_deallocation test_kernel_workspace \
  test_overwrite test_relocation test_window test_plan
valgrind: $(VENV)/.tools
	@command -v valgrind >/dev/null || { echo "error: valgrind was not found: install it" >&2; exit 1; }
	$(BIN)/cmake -S . -B $(VALGRIND_BUILD) -G Ninja "-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)" \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTVM_DTR_PYTHON=OFF -DTVM_DTR_TESTS=ON -DTVM_DTR_CHECKS=ON
	$(BIN)/cmake --build $(VALGRIND_BUILD) --target $(VALGRIND_TESTS)
	set -e; for test in $(VALGRIND_TESTS); do \
	  valgrind --quiet --error-exitcode=1 --leak-check=full $(VALGRIND_BUILD)/$$test; done

# src/cuda declares the driver's interface itself: here it is compared with the toolkit's, and
# compiled by nvcc as well.
CUDA_HOME ?= /usr/local/cuda
CUDA_SOURCES := $(wildcard src/cuda/*.cc)
cuda-check:
	@if [ ! -f "$(CUDA_HOME)/include/cuda.h" ]; then \
	  echo "skipped: no cuda.h under $(CUDA_HOME) (set CUDA_HOME)"; exit 0; fi; \
	set -e; for source in $(CUDA_SOURCES); do \
	  $${CXX:-g++} -std=c++17 -Wall -Wextra -Wno-unused-parameter -Werror -fsyntax-only \
	    -Isrc "-I$(CUDA_HOME)/include" $$source; done; \
	if [ ! -x "$(CUDA_HOME)/bin/nvcc" ]; then \
	  echo "compiled against $(CUDA_HOME)/include/cuda.h; skipped: no nvcc"; exit 0; fi; \
	for source in $(CUDA_SOURCES); do \
	  "$(CUDA_HOME)/bin/nvcc" -std=c++17 -x cu -Isrc -c -o /dev/null $$source; done; \
	echo "compiled against $(CUDA_HOME)/include/cuda.h, and by nvcc"

# 100,000 cases take about an hour; what is done stays in soak.json, and the next call goes on there.
SOAK_PROGRAMS ?= 1000
SOAK_CASES ?= 100
soak: $(VENV)/.test
	cd $(VENV) && bin/python $(CURDIR)/tests/python/soak.py --programs $(SOAK_PROGRAMS) \
	  --cases $(SOAK_CASES) --state $(CURDIR)/soak.json

# In three steps; the second one may be repeated with other COVERAGE_TESTS, what is reached adds up.
COVERAGE := build/coverage
COVERAGE_TESTS ?= tests/python
COVERAGE_DATA := $(COVERAGE)/python-data
GCOVR := $(BIN)/gcovr --root .
coverage: coverage-build
	$(MAKE) coverage-tests
	$(MAKE) coverage-report

coverage-build: $(VENV)/.tools
	$(BIN)/pip install --quiet '.[coverage]'
	$(BIN)/cmake -S . -B $(COVERAGE) -G Ninja "-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)" \
	  "-DPython_EXECUTABLE=$(abspath $(BIN)/python)" -DTVM_DTR_TESTS=ON -DTVM_DTR_CHECKS=ON \
	  -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS=-O1 --coverage -fprofile-update=atomic"
	$(BIN)/cmake --build $(COVERAGE)
	find $(COVERAGE) -name '*.gcda' -delete
	rm -rf $(COVERAGE_DATA) && mkdir -p $(COVERAGE_DATA)
	$(BIN)/ctest --test-dir $(COVERAGE) --output-on-failure
	for module in $(COVERAGE)/*.so; do cp $$module tvm_dtr/.new && \
	  mv tvm_dtr/.new tvm_dtr/$$(basename $$module); done

# Here the package is the source folder's; processes that the tests start are measured too.
coverage-tests:
	COVERAGE_FILE=$(CURDIR)/$(COVERAGE_DATA)/.coverage TVM_NUM_THREADS=1 \
	  PYTHONPATH=$(CURDIR) $(BIN)/coverage run -m pytest -q \
	  $(SHARED) $(PYTEST_ARGS) $(COVERAGE_TESTS)

coverage-report:
	if ls $(COVERAGE_DATA)/.coverage.* > /dev/null 2>&1; then \
	  $(BIN)/coverage combine --append --quiet --data-file=$(COVERAGE_DATA)/.coverage; fi
	$(BIN)/coverage report --data-file=$(COVERAGE_DATA)/.coverage --skip-covered --sort=miss -m \
	  > $(COVERAGE)/tvm_dtr.txt
	$(GCOVR) --filter src/ --exclude-throw-branches --gcov-exclude-directories '.*/CompilerIdCXX' \
	  --json $(COVERAGE)/cpp.json $(COVERAGE)
	for part in core relay_vm cuda bindings; do \
	  $(GCOVR) --add-tracefile $(COVERAGE)/cpp.json --filter "src/$$part/" \
	    --txt $(COVERAGE)/$$part.txt && \
	  echo "src/$$part $$(grep ^TOTAL $(COVERAGE)/$$part.txt)"; done
	echo "tvm_dtr $$(grep ^TOTAL $(COVERAGE)/tvm_dtr.txt)"

# In turns, until each has had FUZZ_SECONDS in all: build/fuzz-state says how long each one has run,
# and the next call goes on there. What an input reaches chooses the next ones where there is clang
# (for C++) and atheris (for Python; it has no wheels for Python 3.10), else chance does.
FUZZ_SECONDS ?= 1800
FUZZ_ARGS ?=
FUZZ_BUILD := build/fuzz
FUZZ_STATE := build/fuzz-state
CLANG ?= $(shell command -v clang++ || command -v clang++-14)
fuzz: $(VENV)/.tools
	$(BIN)/pip install --quiet '.[fuzz]'
	@test -n "$(CLANG)" || echo "note: without clang the C++ targets get random inputs"
	$(BIN)/cmake -S . -B $(FUZZ_BUILD) -G Ninja "-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)" \
	  $(if $(CLANG),-DCMAKE_CXX_COMPILER=$(CLANG) -DTVM_DTR_FUZZ=ON) \
	  -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTVM_DTR_PYTHON=OFF -DTVM_DTR_TESTS=ON \
	  -DTVM_DTR_CHECKS=ON "-DTVM_DTR_SANITIZE=address,undefined"
	$(BIN)/cmake --build $(FUZZ_BUILD) --target fuzz_arena fuzz_program fuzz_runtime
	cd $(VENV) && bin/python $(CURDIR)/tests/fuzz/campaign.py --state $(CURDIR)/$(FUZZ_STATE) \
	  --cpp $(CURDIR)/$(FUZZ_BUILD) $(if $(CLANG),,--random) --seconds $(FUZZ_SECONDS) $(FUZZ_ARGS)

clean:
	rm -rf "$(VENV)" build demo
