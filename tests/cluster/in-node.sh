#!/bin/bash
# in-node.sh NAME COMMAND...: runs a command in a node's mount namespace. Mounts made outside do not show in the node.
set -euo pipefail
exec nsenter --mount --target "$(< "${RUN:-/tmp/provisor-cluster}/node-$1/pid/kubelet")" -- "${@:2}"
