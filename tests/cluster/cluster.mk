# Included by the top Makefile.
.PHONY: cluster cluster-down cluster-build cluster-selftest

cluster: deps cluster-build ## a control plane and one real node with Provisor and two disks, to play with (root)
	$(CARGO) build --release --locked
	tests/cluster/play.sh up

cluster-down: ## end what `make cluster` started, without a trace
	tests/cluster/play.sh down

cluster-build: ## the programs and images of the test cluster; the first time builds Kubernetes
	tests/cluster/build.sh

cluster-selftest: cluster-build ## prove that test clusters come up, work, and leave nothing behind (root)
	tests/cluster/selftest.sh
