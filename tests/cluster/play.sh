#!/bin/bash
# play.sh up|down: a cluster to play with: one node with two disks (loop devices over sparse files), Provisor built from this tree and
# deployed by deploy/. It runs until `play.sh down`. A test cluster can run beside it, and a second one by another RUN.
# PROVISOR names the binary; the default is target/release/provisor.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
export RUN=${RUN:-/tmp/provisor-play}
# shellcheck source=lib.sh
. "$here/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
repo=$(cd "$here/../.." && pwd)
binary=${PROVISOR:-${CARGO_TARGET_DIR:-$repo/target}/release/provisor}
disks=$RUN/node-node-a/disks

case ${1:-} in
  down) exec "$here/down.sh" ;;
  up) ;;
  *) die "usage: play.sh up|down" ;;
esac
[ "$(id -u)" = 0 ] || die "mounts, loop devices and a kubelet need root"
[ -x "$binary" ] || die "no program at $binary: cargo build --release makes it"

finished=
undo() {
  local status=$?
  trap '' INT TERM HUP
  [ -z "$finished" ] || exit "$status"
  "$here/down.sh" >&2
  exit "$((status ? status : 1))"
}
"$here/up.sh"
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
image=$RUN/provisor.tar
"$here/image.sh" "$binary" "$image"
NODE_IMAGES=$image "$here/node-up.sh" node-a
say "image imported: docker.io/provisor/provisor:dev"

# ---- Two disks, as an administrator would prepare them. All of it is below $RUN or in the node's own mount namespace.
in_node() { "$here/in-node.sh" node-a "$@"; }
mkdir -p "$disks"
truncate -s 512M "$disks/disk-1.img" "$disks/disk-2.img"
filesystem=$(losetup --find --show "$disks/disk-1.img")
device=$(losetup --find --show "$disks/disk-2.img")
mkfs.ext4 -q -F "$filesystem"
in_node mkdir -p /mnt/fast-disks/disk-1 /mnt/fast-blocks
in_node mount "$filesystem" /mnt/fast-disks/disk-1
in_node ln -s "$device" /mnt/fast-blocks/disk-2
say "disks: $filesystem on /mnt/fast-disks/disk-1, $device linked from /mnt/fast-blocks/disk-2"

export KUBECONFIG=$RUN/kubeconfig/admin
"$BIN/kubectl" apply -k "$here/play" > /dev/null
finished=yes
# Not a failure of the cluster: it stays for a look at why.
if "$BIN/kubectl" -n provisor rollout status daemonset/provisor --timeout=60s > /dev/null; then say "provisor is ready"; else
  say "provisor is not ready after 60 s; see: kubectl -n provisor describe pod; kubectl -n provisor logs daemonset/provisor"
fi
cat << TRY

  export KUBECONFIG=$KUBECONFIG
  export PATH=$BIN:\$PATH

  kubectl get pv -o wide                                  the two disks
  kubectl -n provisor logs daemonset/provisor -f          what the daemon sees and does
  kubectl apply -f $here/play/try.yaml
                                                          a pod that takes both disks, writes to them and waits
  kubectl delete -f $here/play/try.yaml
                                                          they are released, wiped and offered again
  RUN=$RUN $here/in-node.sh node-a bash
                                                          a shell among the node's mounts (mount another disk there)
  make cluster-down                                       ends it all
TRY
