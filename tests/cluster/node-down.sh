#!/bin/bash
# node-down.sh [NAME]: ends a node's kubelet, containers and containerd, and removes all that node-up.sh made. Running it twice is no error.
# KEEP=1 leaves the node's directory for a look at the logs.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
name=${1:-node-a} dir=$RUN/node-${1:-node-a}
[ -d "$dir" ] || { echo "no node $name in $RUN"; exit 0; }
# shellcheck source=/dev/null
. "$RUN/env"
cgroup=provisor-$SLOT-$name
# Two may come at once: the owner's call and the watchdog's.
exec 6>> "$dir.lock"
flock -w 120 6 || die "another node-down.sh holds $dir"
[ -d "$dir" ] || exit 0

# A script that is still starting the node would start more; it cleans up by itself when told to stop, and then we are its child.
stop "$dir/pid" 1 watchdog
stop "$dir/pid" 10 kubelet

# The containers: everything in the node's cgroup.
processes() { local path; for path in $(cgroup_dirs "$cgroup"); do find "$path" -name cgroup.procs -exec cat {} + 2> /dev/null || true; done | sort -u; }
containers_are_gone() { [ -z "$(processes)" ]; }
for _ in {1..100}; do
  pids=$(processes)
  [ -n "$pids" ] || break
  # shellcheck disable=SC2086 # a list of numbers
  kill -KILL $pids 2> /dev/null || true
  sleep 0.1
done
containers_are_gone || echo "these did not end: $(processes)" >&2

# The kubelet attaches a loop device over every Block volume in use, and would have detached it when its pod ended.
detach_loops "$dir"
stop "$dir/pid" 10 containerd
# A shim outlives its containerd on purpose. Ours are those that were given our socket. (The pattern comes by file, else grep finds itself.)
shims() { grep -lzsFx -f <(echo "$dir/containerd.sock") /proc/[0-9]*/cmdline | cut -d/ -f3; }
no_shims() { [ -z "$(shims)" ]; }
for signal in TERM KILL; do
  # shellcheck disable=SC2046
  no_shims || kill -s "$signal" $(shims) 2> /dev/null || true
  within 3 no_shims && break
done
detach_loops "$dir"

for path in $(cgroup_dirs "$cgroup"); do
  [ ! -d "$path" ] || find "$path" -depth -type d -exec rmdir {} + 2> /dev/null || true
done
with_machine machine_leave "$cgroup"
index=$(cat "$dir/index" 2> /dev/null || true)
[ -z "$index" ] || net_remove "10.88.$((SLOT * NODES_PER_SLOT + index))."
[ -z "$index" ] || rmdir "$RUN/index-$index" 2> /dev/null || true
if [ -z "${KEEP:-}" ]; then
  unmount_below "$dir"
  rm -rf --one-file-system "$dir" "$dir.lock"
fi
say "node $name stopped"
