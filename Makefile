# Commands for users, developers and continuous integration; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PAPER := $(BIN)/proxlearn paper
# One thread per test process. Three processes keep two cores busy, because some tests wait for other processes.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal

.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

# The constraints pin the tested versions, both in the environment and in the isolated build of the package.
$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (a minute or two, once) ..."
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)

.PHONY: setup
setup: $(READY)  ## create the environment .venv

.PHONY: train
train: $(READY)  ## create the environment, then run the paper's WDBC experiment on built-in data (250000 recursions)
	@echo "The paper's WDBC experiment: 250000 recursions, 2 to 5 minutes on 2 cores. You will see the test accuracy reach"
	@echo "about 0.93 while the risk rises: the paper's initial weights are values of a density and sum to 2.3e-5, so the"
	@echo "interaction that would keep the output f at its target vanishes, and |f| grows; its sign still gives the class."
	@echo "The recommended settings take seconds: $(BIN)/proxlearn train dataset=wdbc recipe=tuned"
	$(BIN)/proxlearn train dataset=wdbc beta=0.05

.PHONY: tuned
tuned: $(READY)  ## run recipe=tuned on every dataset and compare accuracy and time with the paper's (minutes; resumable)
	$(PAPER) runs tuned

.PHONY: losses
losses: $(READY)  ## compare the quadratic loss with the logistic loss or cross-entropy, five splits per dataset (minutes; resumable)
	$(PAPER) runs losses

.PHONY: weights
weights: $(READY)  ## compare proximal, uniform and Fisher-Rao weights, 20 paired splits per dataset (an hour; resumable)
	$(PAPER) runs weights

.PHONY: verify
verify: $(READY)  ## compare the recursion with flows whose solutions are known (half an hour; resumable)
	$(BIN)/proxlearn verify

.PHONY: weights-experiment
weights-experiment: $(READY)  ## run the designed experiment on whether weights lower the risk (an hour; resumable)
	$(BIN)/proxlearn verify --experiment weights

.PHONY: compare
compare: $(READY)  ## compare networks, samplers and reference methods on the same splits, light presets (20 minutes on 2 cores; resumable)
	$(BIN)/proxlearn compare --dataset banana diabetes twonorm wdbc --splits 5

.PHONY: test
test: $(READY)  ## create the environment, then run the linter, the type checker and the tests that are not slow
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m 'not slow'

.PHONY: docs
docs: $(READY)  ## build the site from docs/ (seconds, offline); open docs/_build/html/index.html
	$(BIN)/sphinx-build -q -n -W --keep-going docs docs/_build/html
	@echo "docs/_build/html/index.html"

.PHONY: test-slow
test-slow: $(READY)  ## run the tests that are too slow for `make test`
	$(PYTEST) -m slow

.PHONY: test-faults
test-faults: $(READY)  ## run all random kills, damaged files and invalid inputs, of which `make test` draws a sample (minutes)
	PROXLEARN_FAULTS=full $(PYTEST) -m faults

.PHONY: coverage
coverage: $(READY)  ## run the tests of `make test` and report the share of lines that they cover
	$(PYTEST) -m 'not slow' --cov --cov-report=term

.PHONY: bits
bits: $(READY)  ## compare clouds after 300 steps with those of the last commit of 0.1, bit for bit (half an hour)
	$(BIN)/python scripts/compare_bits.py

TABLES_AND_FIGURES := table1 table2 table3 table4 table5 fig2 fig3 fig4 fig5 curves shd health

.PHONY: paper
paper: $(READY)  ## build all tables and figures from the stored runs; `make X` also computes the missing runs of X: table1 to table5, shd, fig2 to fig5, curves, health
	$(PAPER) all

.PHONY: $(TABLES_AND_FIGURES)
$(TABLES_AND_FIGURES): $(READY)
	$(PAPER) runs $@

.PHONY: paper-runs
paper-runs: $(READY)  ## compute all missing runs of the paper, then build all tables, figures and pages (a day)
	$(PAPER) runs

.PHONY: paper-quick
paper-quick: $(READY)  ## do the same as paper-runs with a hundredth of the steps, in outputs/paper-quick
	$(PAPER) --quick

PAGE := outputs/banana/page

.PHONY: page-picture
page-picture: $(READY)  ## create the README's picture of a report: train banana, then take a screenshot of its report (needs chromium)
	$(BIN)/proxlearn train dataset=banana recipe=tuned N=300 epsilon=1 beta=1000 hydra.run.dir=$(PAGE)
	$(BIN)/proxlearn report $(PAGE)
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=1280,1725 --virtual-time-budget=4000 \
	  --screenshot=$(PAGE)/report.png "file://$(CURDIR)/$(PAGE)/report.html"
	$(BIN)/python -c "from PIL import Image; Image.open('$(PAGE)/report.png').convert('RGB').quantize(256, kmeans=4).save('outputs/readme/report.png')"

.PHONY: format
format: $(READY)  ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: clean
clean:  ## remove the environment and the caches (outputs/ is kept)
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache docs/_build docs/_static docs/reference docs/results .hypothesis .coverage* htmlcov
