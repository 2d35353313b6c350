# Two commands: `make lab` to work through the course, `make test` to check all of it.
BIN := .venv/bin
UVFLAGS := --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

.PHONY: help setup lab test localstack setup-localstack test-localstack parity store bench lock format
help:
	@echo "make lab                open the course in JupyterLab (makes everything it needs)"
	@echo "make lab ARGS=--check   the same without a browser; ends with a line that says whether it works"
	@echo "make test               lint, types, unit and browser tests, parity suite, every notebook"
	@echo "make setup SETUP=--again  make the environments anew"
	@echo "make test ARGS=unit     one part of it: lint, types, unit, browser, parity or notebooks"
	@echo "make localstack         start LocalStack (with Docker, else without): LABKIT_TARGET=localstack leads there"
	@echo "make test-localstack    the parity suite and every notebook on LocalStack, without Docker"
	@echo "make store              run the notebooks and store their outputs"
	@echo "make parity             store what the parity suite shows on the chosen target"
	@echo "make bench              what the pieces cost on this machine"

setup:
	@sh infra/setup.sh $(SETUP)

lab: setup
	@$(BIN)/labkit lab $(ARGS)

test: setup
	@$(BIN)/python tests/run.py $(ARGS)

# LocalStack without Docker has an environment of its own, on CPython 3.13.
setup-localstack: setup
	@sh infra/setup.sh --localstack $(SETUP)

localstack: setup
	@sh infra/setup.sh --localstack || test $$? = 3  # without CPython 3.13 it takes Docker
	@$(BIN)/labkit up --target localstack

test-localstack: setup-localstack
	@$(BIN)/python -m tests.second_witness $(ARGS)

parity: setup  # store what the parity suite shows on the chosen target; look at the diff
	@$(BIN)/python tests/run.py record-parity
	@$(MAKE) --no-print-directory store ARGS=notebooks/00_start_here.ipynb  # it shows the table

store: setup  # run the notebooks and store their outputs
	@export LABKIT_HOME=.lab/store; $(BIN)/python -m tests.notebooks.store $(ARGS); code=$$?; $(BIN)/labkit down; exit $$code

bench: setup
	@$(BIN)/python -m tests.benchmarks $(ARGS)

format: setup
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

lock:
	uv pip compile $(UVFLAGS) --extra course --extra agents --extra dev pyproject.toml -o requirements/course.lock
	uv pip compile $(UVFLAGS) infra/emulator/pyproject.toml -o requirements/emulator.lock
	uv pip compile --universal --python-version 3.13 --generate-hashes --no-emit-index-url --no-header \
	  --overrides infra/localstack/overrides.txt infra/localstack/pyproject.toml -o requirements/localstack.lock
	echo uv | uv pip compile $(UVFLAGS) - -o requirements/tools.lock
