# make demo    install, train a small transformer, see its accuracy, three answers and a report
# make test    install, then everything a fresh machine checks: style, types, all tests
# make check   style, types and the quick tests
# make browser  install Debian's chromium, for the tests of the studio's page
# make fix     let ruff put right what it can
# make mutants  plant over 150 small mistakes, one at a time, and see the tests notice each
# make pages   write what is made from the exercises: their list and their pages in docs
# make bench   the speed table, as ratios measured in one run

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

# Every pip call is held to the exact versions: a newer torch would bring gigabytes of CUDA.
export PIP_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install demo test check browser fix mutants pages bench clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/clearhead train substring
	@printf '\nfor the commands above, once per shell:\n. $(BIN)/activate\n'

# Without chromium the tests of the page are skipped, except where CI is set: there they fail.
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && apt-get update -qq \
		&& apt-get install -y -qq --no-install-recommends chromium; } \
		|| echo "chromium is missing, so the tests of the page are skipped; install it to run them"

check: install browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto -rs -m "not slow"

test: install browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n auto -rs

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

mutants: install
	$(BIN)/python tests/mutants.py

pages: install
	$(BIN)/python -m clearhead.exercises.pages

bench: install
	$(BIN)/clearhead bench

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
