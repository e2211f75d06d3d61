# `make demo` and `make test` need a POSIX shell, make, Python 3.11 or newer and a package index.
# They set up .venv themselves; PYTHON=... chooses the interpreter, ARGS=... goes to the command.
#
# Paths are relative and tools run as modules, so a tree below a folder with spaces works too.

.POSIX:
.PHONY: help setup demo test test-browser test-engines lint format bench fuzz chaos protos reference docs results clean

ARGS =
VENV_PYTHON = .venv/bin/python
# How many tests at a time: twice the cores, because those with real processes mostly wait.
WORKERS = $$(($$(getconf _NPROCESSORS_ONLN) * 2))

# Measured traces are not part of the tree; a checkout that has them beside it uses them.
WITH_DATA = if [ -z "$${THEMIS_DATA:-}" ] && [ -d ../shared/data ]; then \
	THEMIS_DATA=$$(cd ../shared/data && pwd) && export THEMIS_DATA; fi;

help:
	@echo "make demo     three teams train on 16 pretend GPUs, for two minutes (ARGS=--quick for less)"
	@echo "make test     run the tests                   (ARGS='-k auction' for some of them)"
	@echo "make test-browser  the dashboard in Chromium, in all looks, with pictures in screenshots/"
	@echo "make test-engines  on a real Slurm and a real Ray, installed if they are missing (ARGS='-m engines_quick')"
	@echo "make setup    create .venv with .venv/bin/themis (PYTHON=python3.12 to choose one)"
	@echo "make lint     ruff, mypy and the import contracts"
	@echo "make format   let ruff rewrite what it can"
	@echo "make bench    the benchmarks, one JSON line each"
	@echo "make fuzz     the property tests, randomised and longer"
	@echo "make chaos    kills and faults, ten times as many as in the tests"
	@echo "make protos   the code of the wire format from its .proto"
	@echo "make reference  what is made from the code: parts of docs/reference/, pictures of docs/concepts/"
	@echo "make docs     the documentation as a site, build/docs/index.html"
	@echo "make results  the whole evaluation: reproduce-out/ and docs/results.md; many hours, resumes"
	@echo "make clean    remove .venv, caches, screenshots/, reproduce-out/ and -quick/"

setup:
	@PYTHON="$(PYTHON)" sh scripts/setup

demo: setup
	@.venv/bin/themis demo $(ARGS)

test: setup
	@$(WITH_DATA) $(VENV_PYTHON) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Named, so that all looks are tried; `make test` tries two of the four.
test-browser: setup
	@THEMIS_SCREENSHOTS=screenshots $(VENV_PYTHON) -m pytest tests/browser $(ARGS)

# Others start slowly and many: one after the other they take a few minutes.
test-engines: setup
	@THEMIS_ENGINES=1 sh scripts/engines
	@THEMIS_ENGINES=1 $(VENV_PYTHON) -m pytest tests/engines tests/integrations/ray_tune -m 'slurm or ray' $(ARGS)

lint: setup
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .
	@$(VENV_PYTHON) -m mypy
	@.venv/bin/lint-imports

format: setup
	@$(VENV_PYTHON) -m ruff check --fix-only .
	@$(VENV_PYTHON) -m ruff format .

bench: setup
	@$(WITH_DATA) for each in benchmarks/*.py; do $(VENV_PYTHON) "$$each" $(ARGS) || exit 1; done

# The plugin marks every property test and state machine `hypothesis`.
fuzz: setup
	@$(WITH_DATA) $(VENV_PYTHON) -m pytest -n auto -m hypothesis --hypothesis-profile=fuzz $(ARGS)

chaos: setup
	@$(WITH_DATA) THEMIS_CHAOS=1 $(VENV_PYTHON) -m pytest -n auto -m chaos $(ARGS)

protos:
	@PYTHON="$(PYTHON)" sh scripts/protos

reference: setup
	@sh scripts/reference $(ARGS)
	@$(VENV_PYTHON) docs/site/pictures.py

docs: setup
	@sh scripts/docs

# ARGS='--minutes 40' makes it in parts: it fails until all of it is there.
results: setup
	@$(WITH_DATA) .venv/bin/themis reproduce all --out reproduce-out \
		--docs docs/results.md --pack reproduce-out/runs.jsonl.xz $(ARGS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis reproduce-out reproduce-quick screenshots dist build
