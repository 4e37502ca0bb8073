#!/bin/bash
# down.sh: ends the cluster in $RUN with its nodes and removes all that they made: only processes that up.sh and node-up.sh recorded, each
# checked by its start time. KEEP=1 leaves $RUN for a look at the logs. Running it twice, or on nothing, is no error.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
[ -e "$MARKER" ] || { echo "no cluster in $RUN"; exit 0; }
# Two may come at once: the owner's call and the watchdog's.
exec 7>> "$MARKER"
flock -w 120 7 || die "another down.sh holds $RUN"
[ -e "$MARKER" ] || exit 0

# first, else it would run us again when the owner ends meanwhile
stop "$RUN/pid" 1 watchdog
for node in "$RUN"/node-*/; do
  [ ! -d "$node" ] || { node=$(basename "$node"); "$CLUSTER_SRC/node-down.sh" "${node#node-}"; }
done
stop "$RUN/pid" 5 kube-scheduler kube-controller-manager service-address
stop "$RUN/pid" 5 kube-apiserver
stop "$RUN/pid" 5 etcd
net_remove ""
detach_loops "$RUN"
slot=$(sed -n 's/^SLOT=//p' "$RUN/env" 2> /dev/null || true)
[ -z "$slot" ] || release_slot "$slot"
if [ -n "${KEEP:-}" ]; then say "stopped; its state is still in $RUN"; exit 0; fi
unmount_below "$RUN"
rm -rf --one-file-system "$RUN"
say "stopped and removed: $RUN"
