#!/bin/bash
# Start a real control plane and a real node, run the tests that need them, and end both again.
# Arguments go to the test program: `tests/real.sh pods` runs those whose name contains it.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
[ "$(id -u)" = 0 ] || { echo "a real node needs root" >&2; exit 1; }

tests/deps.sh compile
tests/cluster/build.sh
cargo build --release --locked
cargo test --locked --no-run --test it

export RUN=/tmp/provisor-test-$$
trap 'tests/cluster/down.sh' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
# Everything ends with this shell, also when it is killed. The cluster comes first: what a test mounts before a node starts would
# be copied into the node and stay busy there.
tests/cluster/up.sh --watch-pid $$
tests/cluster/image.sh "${CARGO_TARGET_DIR:-target}/release/provisor" "$RUN/provisor.tar"
NODE_IMAGES=$RUN/provisor.tar tests/cluster/node-up.sh node-a

PATH=${PROVISOR_CLUSTER_BIN:-${XDG_CACHE_HOME:-$HOME/.cache}/provisor-cluster/bin}:$PATH \
  PROVISOR_TEST_RUN=$RUN tests/tidy.sh cargo test --locked --test it -- "real::${1:-}"
