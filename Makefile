# Start with `make demo` and `make test`.
#
# Only Python 3.11 or later is required. Everything is installed into .venv, from lock files with hashes: first the
# build tools, then the packages, so that no build fetches a tool that is not locked. Targets that start Spark or
# PostgreSQL install Java or PostgreSQL if necessary.

.DEFAULT_GOAL := help
SHELL := /bin/sh
.DELETE_ON_ERROR:

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet
STAMP := .venv/.installed
STAMP_OF_DOCS := .venv/.installed-docs
STAMP_OF_RELEASE := .venv/.installed-release
# The class archive from which the JVMs of tests start; made once for each set of packages.
CLASSES := .venv/.class-archive

# The Python of the environment of `make test-python`.
PYTHON ?= python3

# Tests start some hundred processes. Without bytecode caches each would compile the source again.
unexport PYTHONDONTWRITEBYTECODE

# All folders of tests except those that need more than Python, Java and PostgreSQL.
TESTS := $(filter-out tests/__pycache__/ tests/browser/ tests/engines/ tests/kafka/ tests/release/ tests/stores/ tests/walks/,$(wildcard tests/*/))
# The folders that start Spark, and the others.
TESTS_OF_SPARK := $(filter tests/spark/ tests/cluster/,$(TESTS))
TESTS_OF_CORE := $(filter-out $(TESTS_OF_SPARK),$(TESTS))
# The folders that need only Python.
TESTS_OF_PYTHON := tests/pure tests/tables tests/processes
# A worker takes one file at a time, in the order of tests/conftest.py, which sets the number of workers; few, because
# some tests start servers.
SPREAD := -n auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder
# One worker runs the tests that share a Spark session, the other those that start their own JVMs and are mostly idle
# (tests/conftest.py).
SPREAD_OF_SPARK := -n 2 --dist loadfile --no-loadscope-reorder
# Where the halves of `make test` leave which tests failed, and how each ended.
CACHES := .pytest_cache/core .pytest_cache/spark
# Sets JAVA_HOME, for recipes that start Spark.
WITH_JAVA = JAVA_HOME="$$(scripts/ensure-java)" && export JAVA_HOME &&
# Sets POSTGRES_BIN, for recipes that start a PostgreSQL server.
WITH_POSTGRES = POSTGRES_BIN="$$(scripts/ensure-postgres)" && export POSTGRES_BIN &&

# One version of each package for all Python versions and systems, without comments on its origin.
LOCK := --universal --fork-strategy fewest --generate-hashes --no-annotate --no-emit-index-url \
    --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: help
help: ## Print these lines
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 — \2/p' $(firstword $(MAKEFILE_LIST)) | awk -F ' — ' '{ printf "%-17s %s\n", $$1, $$2 }'

.PHONY: demo
demo: $(STAMP) ## Import real flights with Spark, and read them by key
	@$(WITH_JAVA) $(BIN)/python examples/demo.py

# The two run in parallel, because test-spark is mostly idle. What fails beside the others is run once more alone.
.PHONY: test
test: $(CLASSES) ## Run every test that a change has to pass
	@rm -rf $(CACHES)
	@MAKE="$(MAKE)" scripts/run-at-once test-core test-spark || { \
	    [ $$? = 1 ] && $(WITH_JAVA) $(WITH_POSTGRES) $(BIN)/python scripts/test_again.py $(CACHES); }

.PHONY: test-core
test-core: $(STAMP) ## Run the tests that do not start Spark
	@$(WITH_POSTGRES) $(BIN)/python -m pytest -q -o cache_dir=.pytest_cache/core $(SPREAD) $(TESTS_OF_CORE) </dev/null

.PHONY: test-spark
test-spark: $(CLASSES) ## Run the tests that start Spark
	@$(WITH_JAVA) $(BIN)/python -m pytest -q -o cache_dir=.pytest_cache/spark $(SPREAD_OF_SPARK) $(TESTS_OF_SPARK) \
	    </dev/null

.PHONY: test-downgrade
test-downgrade: $(STAMP) ## Let the Lakebed of a WHEEL, by default of HEAD, work on an instance of this checkout
	@$(BIN)/python -m tests.golden.downgrade $(or $(WHEEL),HEAD)

.PHONY: second-reader-js
second-reader-js: $(STAMP) ## Fetch the packages of the reader in JavaScript, and hold it to the specification kit
	@npm ci --prefix examples/second_reader_js --ignore-scripts --no-audit --no-fund --silent
	@$(BIN)/python -m pytest -q tests/golden/test_kit.py -k '[js'

.PHONY: coverage
coverage: $(STAMP) ## Run test-core and fail if too few branches are covered
	@$(WITH_POSTGRES) $(BIN)/python -m pytest -q $(SPREAD) --cov --cov-report= $(TESTS_OF_CORE) </dev/null
	@$(BIN)/coverage json --quiet -o .coverage.json && $(BIN)/python scripts/check_coverage.py .coverage.json

.PHONY: test-pure
test-pure: $(STAMP) ## Run the tests that need no disk and no other process: some seconds
	@$(BIN)/python -m pytest -q $(SPREAD) tests/pure </dev/null

.PHONY: test-unit
test-unit: $(STAMP) ## Run the tests of modules, tables and processes, which need only Python
	@$(BIN)/python -m pytest -q $(SPREAD) $(TESTS_OF_PYTHON) </dev/null

.PHONY: test-python
test-python: ## Run test-unit on another Python: make test-python PYTHON=python3.14
	@"$(PYTHON)" -m venv .venv-other
	@$(subst $(BIN),.venv-other/bin,$(PIP)) install --require-hashes --requirement requirements-build.lock
	@$(subst $(BIN),.venv-other/bin,$(PIP)) install --require-hashes --no-build-isolation --requirement requirements.lock
	@$(subst $(BIN),.venv-other/bin,$(PIP)) install --no-deps --no-build-isolation --editable .
	@.venv-other/bin/python -m pytest -q $(SPREAD) $(TESTS_OF_PYTHON) </dev/null

# What uses calls that only some systems have, with their portable forms, and on file systems of other systems (as root,
# with ntfs-3g, exfat-fuse and exfatprogs; else these are skipped).
TESTS_OF_PORTABLE := tests/processes/test_portable.py tests/processes/storage tests/tables/storage \
    tests/processes/spark/test_worker_pool.py tests/adversarial/test_statement_limits.py tests/spark/test_python_workers.py
FILE_SYSTEMS := tests/processes/storage/test_file_systems.py
.PHONY: test-portable
test-portable: $(STAMP) ## Check types as on macOS, and test what systems differ in with its portable forms
	@$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src
	@$(WITH_JAVA) LAKEBED_PORTABLE=1 $(BIN)/python -m pytest -q $(SPREAD) --ignore $(FILE_SYSTEMS) $(TESTS_OF_PORTABLE) </dev/null
	@$(BIN)/python -m pytest -q -rs $(FILE_SYSTEMS) </dev/null

.PHONY: test-walks
test-walks: $(STAMP) ## Run the first steps of a new user, from the built wheel in empty environments
	@$(WITH_JAVA) CHROMIUM="$$(scripts/ensure-chromium)" && export CHROMIUM && $(BIN)/python -m pytest -q --durations=0 tests/walks </dev/null

# The readers, writers, sorts and merges, which use PyArrow and DataFusion most.
LOWEST := .venv-lowest
.PHONY: test-lowest
test-lowest: $(STAMP) ## Run some unit tests with the lowest versions of PyArrow, DataFusion and others
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable .
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python duckdb hypothesis 'pandas<3' polars pydantic pytest \
	    pytest-xdist zstandard
	@$(LOWEST)/bin/python -m pytest -q $(wildcard $(foreach area,read ingest sorting merging,$(addsuffix /$(area),$(TESTS_OF_PYTHON)))) \
	    tests/tables/test_table.py </dev/null

# Without streams, which need a later version (docs/compatibility.md).
SPARK_OLDEST := .venv-spark-oldest
TESTS_OF_OLDEST := $(patsubst %,tests/spark/test_%.py,placement import ingest export datasource interfaces key_types_on_spark connect)
.PHONY: test-spark-oldest
test-spark-oldest: $(STAMP) ## Test the pipeline and the data source on the lowest version of Spark
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(SPARK_OLDEST)
	@$(BIN)/uv pip install --quiet --python $(SPARK_OLDEST)/bin/python --editable \
	    '.[connect,duckdb,flight,polars,serve,spark]' 'pyspark[connect]==4.0.*' adbc-driver-flightsql adbc-driver-manager \
	    hypothesis psutil pytest pytest-xdist
	@$(WITH_JAVA) $(SPARK_OLDEST)/bin/python -m pytest -q $(SPREAD_OF_SPARK) -m 'slow or not slow' $(TESTS_OF_OLDEST) </dev/null

.PHONY: test-browser
test-browser: $(STAMP) ## Test the pages in Chromium, which is installed if necessary
	@CHROMIUM="$$(scripts/ensure-chromium)" && export CHROMIUM && $(BIN)/python -m pytest -q tests/browser </dev/null

.PHONY: test-stores
test-stores: $(STAMP) ## Run the store contract on servers for S3, GCS and Azure; needs Go and npm
	@STORES_BIN="$$(scripts/ensure-stores)" && export STORES_BIN && $(BIN)/python -m pytest -q tests/stores </dev/null

# Reads in place of ten minutes are not a hang; the dump of all threads at the limit can end the process.
LONGER := -o faulthandler_timeout=1500
.PHONY: test-engines
test-engines: $(STAMP) ## Test other engines on published tables and the gateway: DuckDB, and Spark with Iceberg; needs Maven
	@$(WITH_JAVA) ENGINES="$$(scripts/ensure-engines)" && export ENGINES && $(BIN)/python -m pytest -q $(LONGER) tests/engines tests/interop/test_read_in_place.py </dev/null

.PHONY: test-kafka
test-kafka: $(STAMP) ## Test followers of topics on a real Kafka, which Maven fetches
	@$(WITH_JAVA) KAFKA="$$(scripts/ensure-kafka)" && export KAFKA && $(BIN)/python -m pytest -q tests/kafka </dev/null

# Packages of their own, which `make test` does not need. Each has a lock, with what it connects Lakebed to.
INTEGRATIONS := $(patsubst integrations/%/requirements.lock,%,$(wildcard integrations/*/requirements.lock))
.PHONY: test-integrations $(INTEGRATIONS)
test-integrations: $(INTEGRATIONS) ## Run the tests of integrations/, each with the packages of its lock
$(INTEGRATIONS): $(STAMP)
	@scripts/test-integration $@

.PHONY: test-deploy
test-deploy: $(STAMP) ## Test deploy/ with helm (needs Go if helm is missing), and the steps of the image (as root, with debootstrap)
	@HELM="$$(scripts/ensure-helm)" && export HELM && $(BIN)/python -m pytest -q -rs tests/processes/deploy tests/walks/test_image.py </dev/null

.PHONY: check
check: $(STAMP) ## Check lint, format, types, and the direction of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

.PHONY: format
format: $(STAMP) ## Fix what ruff can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMP_OF_DOCS) ## Build the documentation as a site in site/, strictly and offline
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Each file is given to the command in ATTEST, if there is one (RELEASE.md).
.PHONY: release
release: $(STAMP_OF_RELEASE) ## Build wheel and sdist twice, compare and check them, into dist/ (REHEARSE=1: before its day)
	@$(BIN)/python -m scripts.release $(if $(REHEARSE),--rehearse) --attest '$(ATTEST)'

.PHONY: test-release
test-release: $(STAMP_OF_RELEASE) ## Test the tools of a release on releases of a small package: some minutes
	@$(BIN)/python -m pytest -q -rs tests/release </dev/null

# Of what is installed with the extra all, in the locked versions.
.PHONY: sbom
sbom: $(STAMP_OF_RELEASE) ## Write sbom.cdx.json anew, after a change of the version or of a lock
	@$(BIN)/uv pip compile --quiet $(filter-out --generate-hashes,$(LOCK)) --no-header --all-extras \
	    --constraint requirements.lock --constraint requirements-build.lock --output-file .venv/runtime.txt pyproject.toml
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible --of JSON \
	    --spec-version 1.6 --output-file sbom.cdx.json .venv/runtime.txt 2>/dev/null

.PHONY: pictures
pictures: $(STAMP) ## Take the pictures of the documentation again: pages, a notebook, a terminal
	@CHROMIUM="$$(scripts/ensure-chromium)" && export CHROMIUM && $(BIN)/python -m scripts.take_pictures docs/images

.PHONY: bench
bench: $(STAMP) ## Run the benchmarks, each with its peers in the same run
	@$(WITH_JAVA) $(WITH_POSTGRES) $(BIN)/python -m benchmarks

.PHONY: soak
soak: $(STAMP) ## Run a million random schedules of the protocol, random steps and tables, more examples of each property, and the slow tests
	@$(BIN)/python -m pytest -q tests/model --protocol-schedules 1000000 --hypothesis-profile nightly </dev/null
	@$(BIN)/python -m pytest -q tests/adversarial/test_merging_machine.py --hypothesis-profile nightly </dev/null
	@$(BIN)/python -m pytest -q -m 'hypothesis and not slow' --hypothesis-profile nightly $(TESTS_OF_PYTHON) </dev/null
	@$(BIN)/python -m tests.adversarial.test_random_tables 1000 1400
	@$(BIN)/python -m tests.adversarial.test_random_predicates 1000000 1000
	@$(BIN)/python -m tests.adversarial.indexed_soak --operations 1000000 --minutes 120
	@$(WITH_JAVA) $(WITH_POSTGRES) $(BIN)/python -m pytest -q -m slow --hypothesis-profile nightly $(TESTS) </dev/null
	@$(MAKE) test-stores
	@READ_IN_PLACE_S=600 $(MAKE) test-engines
	@$(WITH_JAVA) KAFKA="$$(scripts/ensure-kafka)" && export KAFKA && $(BIN)/python -m pytest -q -m 'slow or not slow' tests/kafka </dev/null

MINUTES ?= 30
.PHONY: trust
trust: $(STAMP) ## Run the targets of docs/reliability.md for some time: make trust MINUTES=30; counts add up over runs
	@$(WITH_POSTGRES) $(BIN)/python -m tests.trust run --minutes $(MINUTES) --only "$(ONLY)" $(if $(UNTIL),--until $(UNTIL)) </dev/null

.PHONY: lock
lock: $(STAMP) ## Update the lock files to pyproject.toml and the newest versions that it allows
	@$(BIN)/uv pip compile --quiet --upgrade $(LOCK) --group build --output-file requirements-build.lock
	@$(BIN)/uv pip compile --quiet --upgrade $(LOCK) --group dev --all-extras \
	    --constraint requirements-build.lock --output-file requirements.lock pyproject.toml
	@$(BIN)/uv pip compile --quiet --upgrade $(LOCK) --group docs --constraint requirements-build.lock \
	    --constraint requirements.lock --output-file requirements-docs.lock
	@$(BIN)/uv pip compile --quiet --upgrade $(LOCK) --group release --constraint requirements-build.lock \
	    --constraint requirements.lock --constraint requirements-docs.lock --output-file requirements-release.lock

.PHONY: lock-integrations
lock-integrations: $(STAMP) ## Update the lock files of integrations/
	@for name in $(INTEGRATIONS); do $(BIN)/uv pip compile --quiet --upgrade $(subst make lock,make lock-integrations,$(LOCK)) \
	    --project integrations/$$name --no-emit-package lakebed --no-emit-package sqlalchemy-lakebed \
	    --group integrations/$$name/pyproject.toml:dev \
	    --output-file integrations/$$name/requirements.lock integrations/$$name/pyproject.toml || exit 1; done

.PHONY: clean
clean: ## Remove .venv, caches and the files of the demo
	rm -rf .kafka .venv .venv-integrations .venv-other .venv-lowest .venv-spark-oldest .engines .stores site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist demo-lake* .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock requirements-build.lock
	@python=$$(scripts/ensure-python) && { [ -x $(BIN)/pip ] || "$$python" -m venv .venv; }
	@echo "Installing the locked packages into .venv (the first time takes some minutes, most of it for Spark)" >&2
	@$(PIP) install --require-hashes --requirement requirements-build.lock
	@$(BIN)/python scripts/install_locked.py requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# A failure is ignored, because the archive only makes tests faster.
$(CLASSES): $(STAMP)
	@$(WITH_JAVA) $(BIN)/python -m lakebed.spark.class_archive >/dev/null 2>&1 || true
	@touch $@

$(STAMP_OF_RELEASE): $(STAMP) requirements-release.lock
	@$(PIP) install --require-hashes --no-build-isolation --requirement requirements-release.lock
	@touch $@

# Only for the site; packages that are also in the other lock files have the same versions.
$(STAMP_OF_DOCS): $(STAMP) requirements-docs.lock
	@$(PIP) install --require-hashes --no-build-isolation --requirement requirements-docs.lock
	@touch $@
