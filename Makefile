# Everything runs in .venv, made on first use. TORCH chooses the PyTorch to test with.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 4
SECONDS ?= 60

# A worker that has nothing left takes tests over from the others.
SPREAD := -n $(WORKERS) --dist worksteal

.PHONY: help demo test test-long test-frameworks test-fast test-torch suite lint guest fuzz attack coverage mutants audit lock benchmark dashboards docs wheel release test-install clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# an environment of its own, or the one of development where that is made already
DEMO := $(if $(wildcard $(READY)),$(VENV),.venv-demo)

demo: $(DEMO)/.ready ## a small compiled training, watched live (under 4 minutes)
	$(DEMO)/bin/warmwatch demo

.venv-demo/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-demo
	.venv-demo/bin/pip install "$(TORCH)" -e ".[monitor]"
	touch $@

# mypy uses one core, so the tests begin beside it.
test: $(READY) ## lint, type-check and run the test suite, in 7 to 8 minutes on two cores (12 minutes of CPU)
	tests/support/install-programs.sh
	$(MAKE) --no-print-directory lint & \
	$(BIN)/python -m pytest $(SPREAD) -m "not long and not install" $(PYTEST_ARGS); tests=$$?; \
	wait $$! && exit $$tests

test-long: $(READY) ## what test leaves out: most scenarios, tutorials and simulations of incidents, further variants
	tests/support/install-programs.sh
	$(BIN)/python -m pytest $(SPREAD) -m long $(PYTEST_ARGS)

test-frameworks: $(READY) ## Hugging Face, Lightning, Fabric, Accelerate, torchtitan and Jupyter, which it installs, with tiny models
	$(BIN)/pip install -q --group frameworks
	$(BIN)/python -m pytest $(SPREAD) tests/process/test_frameworks.py tests/process/test_torchtitan.py tests/process/test_notebook.py $(PYTEST_ARGS)

test-fast: $(READY) ## for daily work: what trains nothing and is quick, in under 2 minutes
	tests/support/install-programs.sh
	$(BIN)/python -m pytest $(SPREAD) -m "not training and not slow and not long and not install" $(PYTEST_ARGS)

test-torch: VENV := .venv-$(subst ==,-,$(TORCH))
test-torch: ## all tests with another PyTorch, in an environment of its own (TORCH=torch==2.8.0 TESTS=tests/agent/hooks)
	$(MAKE) suite VENV=$(VENV)
	$(VENV)/bin/warmwatch doctor --hooks

TESTS ?= tests

suite: $(READY)
	tests/support/install-programs.sh
	$(BIN)/python -m pytest $(SPREAD) -m "not install" $(TESTS) $(PYTEST_ARGS)

lint: $(READY) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

guest: $(READY) ## run unusual trainings with and without the agent and compare them (NAMES; PYTHONS: other interpreters; OPTIONS: --long)
	PYTHONPATH=tests $(BIN)/python -m guest $(NAMES) $(OPTIONS) $(addprefix --python ,$(PYTHONS))

fuzz: $(READY) ## look for inputs that break something, for SECONDS (60) for each of TARGETS (all)
	$(BIN)/pip install -q --group fuzz
	PYTHONPATH=tests $(BIN)/python -m fuzz $(TARGETS) --seconds $(SECONDS)

attack: $(READY) ## attack a daemon as other users would, in under 10 minutes, as root (NAMES: some attacks)
	PYTHONPATH=tests $(BIN)/python -m attacks $(NAMES)

coverage: $(READY) ## fail if a branch of the record or the verdict has no test
	$(BIN)/pip install -q --group coverage
	$(BIN)/coverage run -m pytest -q -m "not long" tests/agent/shared tests/agent/ledger tests/agent/recorder tests/monitor/pipeline tests/monitor/sources tests/monitor/status
	$(BIN)/coverage report

mutants: $(READY) ## break a module in every small way; fail if no test notices (MODULES)
	PYTHONPATH=tests $(BIN)/python -m mutants $(MODULES) --workers $(WORKERS)

audit: $(READY) ## check the dependencies for known vulnerabilities
	tests/support/audit.sh $(BIN)

# what the image installs, for its Python
LOCK_IMAGE := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile -q --python-version 3.13 \
	--generate-hashes --no-annotate --no-emit-index-url

BUILD_REQUIRES := import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')

lock: $(READY) ## pin the development dependencies again, with their hashes
	$(BIN)/pip install -q --group lock
	mkdir -p .cache
	$(BIN)/dependency-groups dev | $(BIN)/pip-compile -q --upgrade --generate-hashes --allow-unsafe \
		--strip-extras --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--no-emit-trusted-host --extra monitor --extra otlp -o .cache/requirements.txt pyproject.toml -
	(sed '/^[^#]/,$$d' requirements-dev.txt; cat .cache/requirements.txt) > .cache/requirements-dev.txt
	mv .cache/requirements-dev.txt requirements-dev.txt
	$(LOCK_IMAGE) --upgrade --extra monitor --extra otlp pyproject.toml -o docker/requirements.txt
	$(BIN)/python -c "$(BUILD_REQUIRES)" | grep -v uplot | $(LOCK_IMAGE) --upgrade -o docker/build-requirements.txt -
	$(BIN)/python -c "$(BUILD_REQUIRES)" | grep uplot | $(LOCK_IMAGE) --no-deps --no-header - >> docker/build-requirements.txt

benchmark: $(READY) ## the speed claims, each a ratio measured in one run
	$(BIN)/pip install -q --group benchmark
	$(BIN)/python -m benchmarks

dashboards: $(READY) ## write the JSON of the Grafana dashboards again
	PYTHONPATH=dashboards $(BIN)/python -m warmwatch_dashboards

docs: $(READY) ## the documentation site, in build/docs; fails on a dead link or a page without one
	$(BIN)/sphinx-build -q -n -W --keep-going -c docs . build/docs
	@echo "open build/docs/index.html"

wheel: $(READY) ## build the wheel into dist/
	$(BIN)/pip wheel -q --no-deps -w dist .

release: $(READY) ## build and check the files of a release, in dist/
	$(BIN)/pip install -q --group release
	rm -rf dist
	$(BIN)/python packaging dist

test-install: $(READY) ## install the wheel with the lowest and the newest dependencies in each Python found here, and with the release before it (PREVIOUS: a commit)
	$(BIN)/pip install -q --group release
	$(BIN)/python -m pytest -m "install" tests/release $(PYTEST_ARGS)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --upgrade "pip>=25.1"
	$(BIN)/pip install "$(TORCH)"
	$(BIN)/pip install -e ".[monitor,otlp]" --group dev
	touch $@

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-demo .venv-torch-* dist build .cache .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
