.DEFAULT_GOAL := help
.PHONY: help run test test-fast check bench bench-poller acceptance openapi fuzz rehearse cold cost rights lint types format synth deploy token webhook-key restore resume destroy sbom lock clean

export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION = 20

STAGE = dev

# All tests are shared out among processes; of some, the start of those would cost more.
WORKERS = --numprocesses=logical --maxprocesses=4 --timeout=300

PYTHON_IN_VENV = .venv/bin/python
CODE = $(foreach tree,layers functions cli infra tests bench,$(if $(shell find $(tree) -name '*.py' 2>/dev/null),$(tree)))
COMPILE = $(PYTHON_IN_VENV) -m piptools compile --quiet --generate-hashes --allow-unsafe --strip-extras \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host
# Of aws-sam-cli only a program is used: its 80 packages stay away, some of them change what
# boto3 imports.
ASKED_ALONE = awk 'NR == FNR { asked[$$1]; next } \
	/^[a-z]/ { split($$1, name, "=="); kept = name[1] in asked } kept && NF && !/^\#/'

help: ## list what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

run: ## start Punctual here: API on 127.0.0.1:8080/v1, data in ./.punctual
	@requirements/install run && exec $(PYTHON_IN_VENV) -m punctual.node

test: node_modules/.package-lock.json ## run the tests; T='tests/unit -k cron' runs some of them
	@requirements/install dev
	@requirements/install clients
	@$(PYTHON_IN_VENV) -m pytest $(or $(T),$(WORKERS))

# Property tests come first, so that no long one is left for the end.
test-fast: export HYPOTHESIS_PROFILE ?= fast
test-fast: ## run the unit and property tests, with a quarter of the examples
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m pytest $(WORKERS) tests/property tests/unit

check: ## run everything that CI runs
	@bash .ci/run

bench: ## measure, and print the figures as a table
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench

bench-poller: ## print how many recurring jobs a second a poller dispatches per core, and how many 10,000 need
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench.poller

acceptance: ## hold an installation to the contract: URL=https://…/v1 TOKEN=… [FUNCTION=name] [QUEUE=https://sqs…]
	@test -n "$(URL)" || { echo "make acceptance URL=https://…/v1 TOKEN=… [PATIENCE=3]" \
		"[FUNCTION=name, for lambda tasks] [CLOSED=another] [QUEUE=https://sqs…, for sqs tasks]" \
		"[TENANT=name TENANT_FUNCTION=name TENANT_QUEUE=https://sqs…, which it alone may reach]" >&2; exit 2; }
	@requirements/install dev
	@PUNCTUAL_URL="$(URL)" PUNCTUAL_TOKEN="$(TOKEN)" PUNCTUAL_PATIENCE="$(PATIENCE)" \
		PUNCTUAL_TASK_FUNCTION="$(FUNCTION)" PUNCTUAL_TASK_QUEUE="$(QUEUE)" PUNCTUAL_TASK_CLOSED="$(CLOSED)" \
		PUNCTUAL_TENANT="$(TENANT)" PUNCTUAL_TENANT_FUNCTION="$(TENANT_FUNCTION)" PUNCTUAL_TENANT_QUEUE="$(TENANT_QUEUE)" \
		$(PYTHON_IN_VENV) -m pytest -rs tests/e2e/acceptance $(T)

openapi: ## write the OpenAPI document, its copy in docs/ and docs/reference/api.md, with examples as answered
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.openapi_scene
	@$(PYTHON_IN_VENV) -m punctual.web.openapi

fuzz: ## send 10,000 and more generated calls to a node here, and hold each answer to the OpenAPI document
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.fuzz

rehearse: node_modules/.package-lock.json ## deploy to an emulator of AWS here, hold it to the contract, destroy it: PASS=whole, roles or recovery
	@requirements/install dev
	@requirements/install rehearse
	@$(PYTHON_IN_VENV) -m tests.rehearsal $(PASS)

cold: ## measure how long each function takes to start, in Lambda's own emulator of its runtime
	@requirements/install dev
	@requirements/install cold
	@$(PYTHON_IN_VENV) -m bench.cold_start

cost: ## count what runs, submissions and idle months cost, and write docs/cost.md
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m bench.cost

rights: ## find out what each function may do and what of it is used, and write docs/rights.md
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m tests.support.deployed.rights

lint: ## look for mistakes and wrong formatting
	@requirements/install dev
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .

types: ## check the types
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m mypy $(CODE)

format: ## format the code and mend what can be mended
	@requirements/install dev
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

# Synthesis needs no account: keep the CDK command line from asking a machine for its role.
synth: export AWS_EC2_METADATA_DISABLED = true
synth: node_modules/.package-lock.json ## write every stage's CloudFormation into cdk.out, and check it
	@requirements/install dev
	@rm -rf cdk.out
	@for stage in dev prod; do \
		node_modules/.bin/cdk synth --quiet --context stage=$$stage --output cdk.out/$$stage || exit; \
	done
	@.venv/bin/cfn-lint --regions us-east-1 --ignore-checks W3005 --template cdk.out/*/*.template.json

deploy: node_modules/.package-lock.json ## put STAGE=dev (or prod) into the AWS account at hand
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy deploy $(STAGE) $(CDK)

token: ## make a new admin token for STAGE=dev; the former is refused from then on
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy token $(STAGE)

webhook-key: ## sign webhooks of STAGE=dev with a new key, and with the former one until the next
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy webhook-key $(STAGE)

restore: ## take STAGE=prod back to one moment: AT=2026-11-18T09:59:00Z; then deploy, then resume
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.restore $(STAGE) "$(AT)"

resume: ## let runs and changes in again, once what STAGE=prod was restored to is deployed
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.restore $(STAGE) resume

destroy: node_modules/.package-lock.json ## remove STAGE=dev and all it holds: YES=1
	@requirements/install dev
	@$(PYTHON_IN_VENV) -m infra.operations.deploy destroy $(STAGE) $(if $(YES),--yes)

node_modules/.package-lock.json: package.json package-lock.json
	@npm ci --no-audit --no-fund --silent
	@touch $@

sbom: ## write a bill of materials for the node and for the functions, into build/sbom
	@requirements/install sbom
	@requirements/sbom

lock: ## pin the newest allowed requirements: UPGRADE=--upgrade, or keep the pins and add what is new
	@requirements/install dev
	@$(COMPILE) $(UPGRADE) --extra dev --build-deps-for editable -o requirements/dev.txt pyproject.toml
	@$(COMPILE) --build-deps-for editable -c requirements/dev.txt -o requirements/run.txt pyproject.toml
	@$(COMPILE) -c requirements/dev.txt -o layers/vendor/requirements.txt layers/vendor/requirements.in
	@$(COMPILE) $(UPGRADE) -o requirements/rehearse.txt requirements/rehearse.in
	@$(COMPILE) $(UPGRADE) -o requirements/sbom.txt requirements/sbom.in
	@$(COMPILE) $(UPGRADE) -o requirements/clients.txt requirements/clients.in
	@$(COMPILE) $(UPGRADE) -o requirements/cold.txt requirements/cold.in
	@$(ASKED_ALONE) requirements/cold.in requirements/cold.txt > requirements/.cold.txt
	@mv requirements/.cold.txt requirements/cold.txt

clean: ## remove what the others made; never the data in ./.punctual
	@rm -rf .venv .venv-rehearse .venv-cold .venv-sbom .venv-clients .rehearsal node_modules cdk.out build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find layers functions cli infra tests bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
