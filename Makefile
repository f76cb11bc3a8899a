# Two commands: `make demo` and `make test`. Both set up .venv from the lock files first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test lint golden clean

demo: $(VENV)/engine.stamp
	$(BIN)/specbench sweep --profile quick

test: $(VENV)/dev.stamp
	$(BIN)/python -m pytest -p no:cacheprovider

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_size.py

golden: $(VENV)/dev.stamp
	-SPECBENCH_REWRITE_GOLDEN=1 $(BIN)/python -m pytest tests/golden tests/unit/report

clean:
	rm -rf $(VENV) build dist

$(VENV)/engine.stamp: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/engine.stamp
	$(PIP) -r requirements-dev.lock
	touch $@
