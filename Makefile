# make demo    the opening story on this machine: one slow dependency, with and without policy
# make check   format, lints, tidy and unit tests: seconds
# make test    everything, with real peers and real clients
# make bench   CPU and memory beside nginx, HAProxy and Envoy (GATE=1: fail above the gates)

SHELL := /bin/bash
.DELETE_ON_ERROR:

# What the tests, the demo and the benchmark run. `make test PROFILE=dev` runs them with debug assertions.
PROFILE ?= bench-fast
BUILT := $(CURDIR)/target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))

export PLIMSOLL_TEST_PROXY := $(BUILT)/plimsoll-proxy
export PLIMSOLL_TEST_CLI := $(BUILT)/plimsoll
export PLIMSOLL_TEST_VENV := $(CURDIR)/target/venv

.PHONY: demo test check bench setup build lint

build:
	cargo build --profile $(PROFILE) -p plimsoll-proxy -p plimsoll -p plimsoll-tests --bins

demo:
	@command -v cc > /dev/null || tests/setup
	cargo build --profile $(PROFILE) -p plimsoll-proxy -p plimsoll --bins
	$(PLIMSOLL_TEST_CLI) demo

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

check: lint
	cargo test -p plimsoll-tests --test tidy
	cargo test --workspace --lib --bins

test: setup lint build
	tests/run-tests

bench:
	tests/setup bench
	cargo build --profile bench-fast -p plimsoll-tests --bins
	cargo build --release -p plimsoll-proxy
	PLIMSOLL_TEST_PROXY=$(CURDIR)/target/release/plimsoll-proxy \
	ENVOY_BINARY=$$(find $(PLIMSOLL_TEST_VENV) -path '*/_bin/envoy') \
	  target/bench-fast/plimsoll-bench $(if $(GATE),--gate) $(BENCH_ARGS)

setup:
	tests/setup
