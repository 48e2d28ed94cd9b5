.DEFAULT_GOAL := help
.PHONY: help run test test-fast check bench bench-poller acceptance openapi fuzz rehearse cold cost rights lint types format synth deploy token webhook-key restore resume destroy sbom lock clean

export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION = 20

STAGE = dev

# All tests run in several processes. A few tests run faster in one.
WORKERS = --numprocesses=logical --maxprocesses=4 --timeout=300

PYTHON_IN_VENV = .venv/bin/python
CODE = $(foreach tree,layers functions cli infra tests bench,$(if $(shell find $(tree) -name '*.py' 2>/dev/null),$(tree)))
COMPILE = $(PYTHON_IN_VENV) -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
# Keep only the packages that cold.in names. aws-sam-cli needs 80 more for parts that we do not use,
# and some of them change what boto3 imports.
NAMED_ONLY = awk 'NR == FNR { named[$$1]; next } \
	/^[a-z]/ { split($$1, name, "=="); kept = name[1] in named } kept && NF && !/^\#/'

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

run: ## start a local node: API on 127.0.0.1:8080/v1, data in ./.punctual
	@requirements/install run && exec $(PYTHON_IN_VENV) -m punctual.node

test: node_modules/.package-lock.json ## run all tests, or some: T='tests/unit -k cron'
	@requirements/install dev
	@requirements/install clients
	@$(PYTHON_IN_VENV) -m pytest $(or $(T),$(WORKERS))

# Property tests go first, so that no long test is left for the end.
test-fast: export HYPOTHESIS_PROFILE ?= fast
test-fast: ## run the unit and property tests, with a quarter of the examples
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m pytest $(WORKERS) tests/property tests/unit

check: ## run everything that CI runs
	@bash .ci/run

bench: ## measure throughput and latency, and print a table
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench

bench-poller: ## measure the recurring jobs that a poller dispatches each second and core
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench.poller

acceptance: ## test an installation against the contract: URL=https://…/v1 TOKEN=… [FUNCTION=name] [QUEUE=https://sqs…]
	@test -n "$(URL)" || { echo "make acceptance URL=https://…/v1 TOKEN=… [PATIENCE=3]" \
		"[FUNCTION=name, for lambda tasks] [CLOSED=a function closed to tasks] [QUEUE=https://sqs…, for sqs tasks]" \
		"[TENANT=name TENANT_FUNCTION=name TENANT_QUEUE=https://sqs…, for the tasks of one tenant]" >&2; exit 2; }
	@requirements/install dev
	@PUNCTUAL_URL="$(URL)" PUNCTUAL_TOKEN="$(TOKEN)" PUNCTUAL_PATIENCE="$(PATIENCE)" \
		PUNCTUAL_TASK_FUNCTION="$(FUNCTION)" PUNCTUAL_TASK_QUEUE="$(QUEUE)" PUNCTUAL_TASK_CLOSED="$(CLOSED)" \
		PUNCTUAL_TENANT="$(TENANT)" PUNCTUAL_TENANT_FUNCTION="$(TENANT_FUNCTION)" PUNCTUAL_TENANT_QUEUE="$(TENANT_QUEUE)" \
		$(PYTHON_IN_VENV) -m pytest -rs tests/e2e/acceptance $(T)

openapi: ## write the OpenAPI document and docs/reference/api.md, with recorded examples
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.openapi_scene
	@$(PYTHON_IN_VENV) -m punctual.web.openapi

fuzz: ## send over 10,000 generated calls to a local node, and check the responses
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.fuzz

rehearse: node_modules/.package-lock.json ## deploy to a local emulator of AWS, test, destroy: PASS=whole, roles or recovery; STAY=1 stays up until Ctrl-C
	@requirements/install dev
	@requirements/install rehearse
	@$(PYTHON_IN_VENV) -m tests.rehearsal$(if $(STAY),.stay) $(PASS)

cold: ## measure the start time of each function in the emulator of Lambda's runtime
	@requirements/install dev
	@requirements/install cold
	@$(PYTHON_IN_VENV) -m bench.cold_start

cost: ## compute the costs of runs, submissions and idle months, and write docs/cost.md
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench.cost

rights: ## list the granted and the used rights of each function, and write docs/rights.md
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.deployed.rights

lint: ## check code and formatting
	@requirements/install dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: ## check the types
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m mypy $(CODE)

format: ## format the code, and fix lint errors
	@requirements/install dev
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

# Synthesis needs no account, so the CDK must not ask the metadata service for a role.
synth: export AWS_EC2_METADATA_DISABLED = true
synth: node_modules/.package-lock.json ## write the CloudFormation templates to cdk.out, and check them
	@requirements/install dev
	@rm -rf cdk.out
	@for stage in dev prod; do \
		node_modules/.bin/cdk synth --quiet --context stage=$$stage --output cdk.out/$$stage || exit; \
	done
	@.venv/bin/cfn-lint --regions us-east-1 --ignore-checks W3005 --template cdk.out/*/*.template.json

deploy: node_modules/.package-lock.json ## deploy STAGE=dev (or prod) to the current AWS account
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy deploy $(STAGE) $(CDK)

token: ## create a new admin token for STAGE=dev, and revoke the former one
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy token $(STAGE)

webhook-key: ## sign webhooks of STAGE=dev with a new key and the former one
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy webhook-key $(STAGE)

restore: ## restore STAGE=prod to a time: AT=2026-11-18T09:59:00Z; then deploy, then resume
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.restore $(STAGE) "$(AT)"

resume: ## allow runs and changes again after the restore of STAGE=prod is deployed
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.restore $(STAGE) resume

destroy: node_modules/.package-lock.json ## delete STAGE=dev with all its data: YES=1
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy destroy $(STAGE) $(if $(YES),--yes)

node_modules/.package-lock.json: package.json package-lock.json
	@npm ci --no-audit --no-fund --silent
	@touch $@

sbom: ## write a bill of materials for node and functions to build/sbom
	@requirements/install sbom
	@requirements/sbom

lock: ## pin new requirements; UPGRADE=--upgrade also updates the pinned ones
	@requirements/install dev
	@$(COMPILE) $(UPGRADE) --extra dev --build-deps-for editable -o requirements/dev.txt pyproject.toml
	@$(COMPILE) --build-deps-for editable -c requirements/dev.txt -o requirements/run.txt pyproject.toml
	@$(COMPILE) -c requirements/dev.txt -o layers/vendor/requirements.txt layers/vendor/requirements.in
	@$(COMPILE) $(UPGRADE) -o requirements/rehearse.txt requirements/rehearse.in
	@$(COMPILE) $(UPGRADE) -o requirements/sbom.txt requirements/sbom.in
	@$(COMPILE) $(UPGRADE) -o requirements/clients.txt requirements/clients.in
	@$(COMPILE) $(UPGRADE) -o requirements/cold.txt requirements/cold.in
	@$(NAMED_ONLY) requirements/cold.in requirements/cold.txt > requirements/.cold.txt
	@mv requirements/.cold.txt requirements/cold.txt

clean: ## delete all build results, but not the data in ./.punctual
	@rm -rf .venv .venv-rehearse .venv-cold .venv-sbom .venv-clients .rehearsal node_modules cdk.out build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find layers functions cli infra tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
