# Included by the top Makefile.
.PHONY: cluster cluster-down cluster-build cluster-selftest

## cluster: a Kubernetes control plane and one real node to play with, Provisor on it (root; the first time builds Kubernetes, about 6 minutes)
cluster: cluster-build
	cargo build --release --locked
	tests/cluster/play.sh up

## cluster-down: ends what `make cluster` started, without a trace
cluster-down:
	tests/cluster/play.sh down

## cluster-build: the programs and images of the test cluster
cluster-build:
	tests/cluster/build.sh

## cluster-selftest: proves that test clusters come up, work, and leave nothing behind (root)
cluster-selftest: cluster-build
	tests/cluster/selftest.sh
