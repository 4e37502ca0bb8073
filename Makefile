# Two commands for a newcomer: `make demo` and `make test`. Each sets up what it needs.
.DEFAULT_GOAL := help
SHELL := /bin/bash
CARGO ?= cargo
DENY_VERSION := 0.20.2

.PHONY: help deps demo test lint bench image

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

deps: ## install what building needs (libudev, pkg-config, a C compiler), as root on Debian
	@tests/deps.sh compile

demo: deps ## the life of a volume on this machine, no cluster needed: 10 s once built
	$(CARGO) run --locked --quiet --example demo

test: deps ## everything: unit, stand-in API server, real control plane, Pods on a real node
	@tests/deps.sh test
	$(CARGO) build --locked --examples
	tests/tidy.sh $(CARGO) test --locked --lib --bins --test it -- --skip real::
	$(CARGO) test --locked --doc
	tests/real.sh

lint: deps ## formatting, clippy, documentation, licences and sources of dependencies
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -Dwarnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --no-deps --quiet
	@[ "$$(cargo-deny --version 2> /dev/null)" = "cargo-deny $(DENY_VERSION)" ] || \
		{ echo "installing cargo-deny $(DENY_VERSION), about 3 minutes once"; $(CARGO) install --quiet --locked cargo-deny --version $(DENY_VERSION); }
	$(CARGO) deny --log-level error check bans licenses sources

# Cargo builds the release binary for them; PROVISOR_BENCH_KUBECONFIG adds a real API server.
bench: deps ## how fast, each figure beside its peer in the same run; BENCH=--long for the full size
	@tests/deps.sh test
	$(CARGO) bench --locked --bench discovery --bench cleaning -- $(BENCH)

-include tests/cluster/cluster.mk
