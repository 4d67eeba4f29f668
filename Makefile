# Needs only Python 3.11 or newer with its venv module, and Java 17 or newer.
.DEFAULT_GOAL := help
.PHONY: help venv java jars tools engine demo test newest simulate fuzz mutants soak bench peers lint types docs chart lock sbom vulnerabilities images clean

VENV ?= .venv
export VENV
BIN := $(VENV)/bin
SOURCES := sidecar wheel connectors tests examples benchmarks

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: java jars ## start a broker and two sidecars, kill one in mid-dispatch, audit what was delivered
	$(BIN)/postdate demo

# Independent checks and preparations run at the same time. If the tests started a Docker engine, it is stopped after
# them. An engine that ran before is left running.
test: java ## lint, types, and every test
	@trap 'scripts/container-image stop 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	  $(MAKE) --no-print-directory --jobs=4 lint types jars tools engine && scripts/run-tests

RULES := small_tables spark_columns spark_times spark_dispatch_log spark_verdicts spark_answers spark_dialects bulk_rules tiers_agree
WITH_KAFKA := spark_columns.py::test_reading_kafka_leaves_the_settings_of_the_session_unchanged \
  spark_columns.py::test_a_reader_waits_briefly_at_the_end_of_a_log_unless_its_settings_differ spark_times.py::test_murmur2_is_kafkas
# These tests read no topic, so they need neither Spark's Kafka connector nor Delta Lake for that version.
newest: java venv ## the tests of the DataFrame rules with the newest PySpark 4 instead of 4.0
	@scripts/prepare newest
	build/newest-spark/bin/python -m pytest -p no:cacheprovider $(WITH_KAFKA:%=--deselect tests/spark/test_%) $(RULES:%=tests/spark/test_%.py)

SEED ?= 1
SEEDS ?= 1000
simulate: venv ## simulate SEEDS=1000 runs from SEED=1 on, over a simulated Kafka; THEME=stalls, TRACE=1 prints every step
	PYTHONPATH=tests $(BIN)/python -m support.simulation --seed $(SEED) --count $(SEEDS) $(if $(THEME),--theme "$(THEME)") $(if $(TRACE),--trace)

SECONDS ?= 60
fuzz: venv ## fuzz the parsers for SECONDS=60 from SEED=1 on; prints a reproducer for each failure
	PYTHONPATH=tests $(BIN)/python -m support.fuzzing --seconds $(SECONDS) --seed $(SEED)

SAMPLE ?= 30
mutants: venv ## remove safeguards one by one, and make SAMPLE=30 small changes of each module, 0: all; lists the changes that no fast test detects
	PYTHONPATH=tests $(BIN)/python -m support.mutation --sample $(SAMPLE) --seed $(SEED)

MINUTES ?= 30
RATE ?= 1000
EACH ?= 1
soak: java jars ## all faults on real processes for MINUTES=30, each EACH=1 times or more, at RATE=1000 a second; SEED=...
	PYTHONPATH=tests $(BIN)/python -m support.faults.soak --minutes $(MINUTES) --each $(EACH) --rate $(RATE) \
	  $(if $(filter-out file,$(origin SEED)),--seed $(SEED)) --report $(or $(REPORT),benchmarks/soak.md)

bench: java jars ## measure every case of `postdate bench`; BENCH="drain steady --repeats 1"; writes benchmarks/bench.json
	$(BIN)/python -m benchmarks.bench $(BENCH)

MESSAGES ?= 100000
RATES ?= 1000
peers: java jars ## load Postdate, RocketMQ and NATS alike: MESSAGES=100000, RATES="1000 3000"; needs Maven and Go
	$(BIN)/python -m benchmarks.peers --messages $(MESSAGES) $(RATES:%=--rate %) --report $(or $(REPORT),benchmarks/peers.md)

endurance: java jars ## a billion requests a day for half an hour, a SIGKILL every two minutes, then the audit; ENDURANCE="--minutes 5"
	$(BIN)/python -m benchmarks.endurance --report $(or $(REPORT),benchmarks/endurance.md) $(ENDURANCE)

lint: venv ## check style and formatting
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: venv ## check types over code and tests
	$(BIN)/mypy
	$(BIN)/mypy tests examples/python benchmarks

venv: $(VENV)/.ready ## make the virtual environment from requirements-dev.lock

$(VENV)/.ready: requirements-dev.lock pyproject.toml scripts/prepare
	@scripts/prepare venv

java:
	@scripts/prepare java

jars: java venv
	@scripts/prepare jars

tools:
	@scripts/prepare tools

# Depends on the tools, since both may install packages by apt, which cannot run twice at the same time.
engine: jars tools
	@scripts/prepare engine

docs: ## build the documents as a site in build/site; a broken link or anchor fails
	@scripts/prepare docs
	build/docs-venv/bin/mkdocs build --strict

chart: venv ## generate the chart's README and the schema of its values
	PYTHONPATH=tests $(BIN)/python -m support.tidiness.chart_documents

lock: venv ## write requirements-dev.lock and requirements-docs.lock from pyproject.toml
	@scripts/lock

sbom: venv ## list the locked packages as CycloneDX JSON in build/sbom.json
	@mkdir -p build
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON --output-file build/sbom.json \
	  requirements-dev.lock

# --strict fails if the database has no answer for a package. Without it, the check would pass with an unreachable
# database.
SERVICE ?= pypi
vulnerabilities: venv ## check the locked packages for known vulnerabilities; SERVICE=osv asks another database
	@$(BIN)/pip-audit --strict --vulnerability-service $(SERVICE) --require-hashes --disable-pip \
	  --requirement requirements-dev.lock || \
	  { echo "postdate: the check failed: a package is vulnerable, or the database $(SERVICE) did not answer or does not know the" \
	    "package, as behind a mirror without PyPI's JSON API; see above. SERVICE=pypi|osv selects the database" >&2; exit 1; }

images: ## build the images of a release and report their sizes; TAG=..., BASE=IMAGE@sha256:...
	@scripts/release-images $(or $(TAG),postdate:$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)) $(BASE)

clean: ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
