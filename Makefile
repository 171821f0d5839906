# The entry points for people and CI. `make` alone lists them; each target can be run again at any time.
# Phases are ordered by cost, and share artefacts: they use the same features and the same profile.

STEP := scripts/step
TARGET := $(or $(CARGO_TARGET_DIR),target)
# All release builds select the same packages, so that `orfa` is built once, with one set of features.
RELEASE := env $(if $(filter Linux-x86_64,$(shell uname -sm | tr ' ' -)),ORFA_RELOCATIONS=1) cargo build --release --locked --package orfa --package guard --package benches
ONLY ?=
SHORT ?=
LONG ?=
# Non-empty if one of these benches is selected.
chosen = $(if $(ONLY),$(strip $(foreach bench,$(1),$(findstring $(bench),$(ONLY)))),all)
SECONDS ?= 60
FILTER_HOST ?= envoy
FILTER_BINARY ?= $(TARGET)/$(if $(filter envoy,$(FILTER_HOST)),rivals/envoy,debug/orfa)

.PHONY: help setup check test deny guard conform conformance hostile fuzz soak demo demo-strapi bench dist
.DEFAULT_GOAL := help

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Check the toolchain; on Debian, as root, install missing packages
	@$(STEP) setup scripts/setup

check: setup ## Formatting, layering, licences, style, names, prose, error codes, generated files, lints, documentation
	@$(STEP) check cargo xtask check

test: check ## The CI run: the checks, all tests including end-to-end tests, and the conformance of filters
	@$(STEP) setup scripts/setup test
	@$(STEP) typos $(TARGET)/tools/bin/typos
	@$(STEP) "build tests" cargo test --workspace --locked --no-run
	@$(STEP) tests cargo test --workspace --locked --quiet
	@$(STEP) "build filters" tests/conformance/proxy-wasm/build $(TARGET)/conformance
	@$(STEP) "build orfa" cargo build --workspace --locked
	@$(STEP) conformance $(TARGET)/debug/proxy-wasm-conformance --host orfa --binary $(TARGET)/debug/orfa \
		--modules $(TARGET)/conformance
	@$(STEP) hostile env ORFA_POLL_LIMIT_MS=50 $(TARGET)/debug/hostile --binary $(TARGET)/debug/orfa
	@$(STEP) guard $(TARGET)/debug/guard

deny: ## Advisories, licences, sources and duplicates of dependencies by `cargo deny`, which it installs (8 min); DB=PATH, a folder with advisory databases, adds advisories
	@$(STEP) setup cargo install --quiet --locked --root $(TARGET)/tools cargo-deny
	@$(STEP) deny env ORFA_ADVISORIES=$(DB) $(TARGET)/tools/bin/cargo-deny --locked check $(if $(DB),--disable-fetch advisories) bans licenses sources

guard: setup ## Instructions per request on each hot path, compared with benches/guard.json; UPDATE=1 writes that, LIST=30 names the costliest functions
	@$(STEP) setup scripts/setup test
	@$(STEP) build cargo build --workspace --locked
	@$(STEP) guard $(TARGET)/debug/guard $(if $(ONLY),--only $(ONLY)) $(if $(LIST),--list $(LIST)) $(if $(UPDATE),--update)

conform: setup ## The tests of h2spec 2.2.1 against the gateway; needs Go, which downloads it (target/h2spec)
	@$(STEP) h2spec env GOBIN=$(abspath $(TARGET)) go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
	@$(STEP) conform env H2SPEC=$(abspath $(TARGET))/h2spec cargo test -p gateway --lib --locked h2spec -- --ignored

conformance: ## Proxy-Wasm modules against a host, FILTER_HOST=envoy or orfa; UPDATE=1 writes the score
	@$(STEP) setup scripts/setup filters
	@$(if $(filter envoy,$(FILTER_HOST)),$(STEP) rivals scripts/rivals $(TARGET)/rivals,$(STEP) build cargo build --locked --package orfa)
	@$(STEP) modules tests/conformance/proxy-wasm/build $(TARGET)/conformance
	@$(STEP) conformance cargo run --quiet --locked --package conformance -- --host $(FILTER_HOST) --binary $(FILTER_BINARY) \
		--modules $(TARGET)/conformance $(if $(ONLY),--only $(ONLY)) $(if $(UPDATE),--update)

hostile: setup ## Each attack of tests/hostile under a light load, with a release build that counts its heap; ONLY=graphql/ for some, UPDATE=1 writes benches/results/
	@$(STEP) build cargo build --release --locked --package orfa --package hostile --features orfa/heap-count
	@$(STEP) hostile $(TARGET)/release/hostile --binary $(TARGET)/release/orfa --measure $(if $(ONLY),--only $(ONLY)) $(if $(UPDATE),--update)

fuzz: setup ## Every fuzz target by libFuzzer with the address sanitizer, SECONDS=60 each; JOBS=2 in parallel, TARGETS=json_documents,credentials for some, UPDATE=1 records them
	@$(STEP) build cargo build --locked --package benches --bin fuzz
	@$(STEP) fuzz $(TARGET)/debug/fuzz --seconds $(SECONDS) $(if $(JOBS),--jobs $(JOBS)) $(if $(TARGETS),--only $(TARGETS)) $(if $(UPDATE),--update)

soak: setup ## Kill workers and the gateway 200 times under a write load: no acknowledged write may be lost
	@$(STEP) build $(RELEASE) --bin orfa
	@$(STEP) soak env ORFA_BINARY=$(abspath $(TARGET))/release/orfa cargo test --workspace --locked --test e2e \
		two_hundred_kills -- --ignored --nocapture

demo: ## The same data by REST, by query, by script, by aggregate and by GraphQL, over a slow connection (target/demo.json)
	@$(STEP) setup scripts/setup demo
	@$(STEP) build $(RELEASE) --bin orfa --bin demo
	@$(TARGET)/release/demo

demo-strapi: ## The paper's workflows with a real Strapi, with every handler and from three distances; installs Strapi (5 min, 750 MB)
	@$(MAKE) --no-print-directory bench ONLY=strapi

bench: ## Measure, and write benches/results/ and docs/benchmarks.md; ONLY=proxy,idle for some, SHORT=1 for a trial run without results, LONG=1 to include a crawl of 65,535 pages
	@$(STEP) setup scripts/setup bench
	@$(if $(call chosen,proxy query json filter strapi script aggregate graphql dedup ways workflows),$(STEP) rivals scripts/rivals $(TARGET)/rivals,:)
	@$(if $(call chosen,strapi),$(STEP) strapi scripts/setup strapi,:)
	@$(STEP) build $(RELEASE) --bin orfa --bin guard --bin floor --bin upstream --bin handwritten --bin bench
	@$(if $(SHORT),:,$(STEP) dist scripts/dist $(TARGET))
	@$(TARGET)/release/bench $(if $(ONLY),--only $(ONLY)) $(if $(SHORT),--short) $(if $(LONG),--long)

dist: ## The release file without symbols, its code layout optimised for the hot paths; prints its size and SHA-256 (target/dist/orfa)
	@$(STEP) setup scripts/setup dist
	@$(STEP) build $(RELEASE) --bin orfa --bin guard
	@$(STEP) dist scripts/dist $(TARGET)
