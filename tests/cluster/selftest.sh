#!/bin/bash
# selftest.sh: proves that a cluster comes up, works, and leaves no trace: after down.sh, after an interrupted up.sh, and after its owner was
# killed. Root only. Every wait has a limit.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
work=$(mktemp -d /tmp/provisor-selftest.XXXXXX)
export RUN=$work/run
# shellcheck source=lib.sh
. "$here/lib.sh"
PATH=$BIN:$PATH:/usr/sbin:/sbin
repo=$(cd "$here/../.." && pwd)
[ "$(id -u)" = 0 ] || die "a node needs root"

passed=0
cleanup() {
  local status=$?
  for run in "$work"/*/; do RUN=${run%/} "$here/down.sh" > /dev/null || true; done
  rm -rf --one-file-system "$work"
  [ "$status" = 0 ] || echo "selftest failed"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
ok() { passed=$((passed + 1)); say "ok: $*"; }
# expect WHAT SECONDS COMMAND...
expect() {
  local what=$1 limit=$2; shift 2
  within "$limit" "$@" || { "$@" >&2 || true; die "not ok: $what"; }
  ok "$what"
}

# ---- What a cluster in $1 with slot $2 must not leave
machine_state() {
  local key path
  cat /etc/hosts
  for key in $SYSCTLS net/ipv4/ip_forward; do echo "$key $(cat "/proc/sys/$key" 2> /dev/null)"; done
  for path in $PRIVATE_DIRS /run/udev /run/mount; do [ ! -d "$path" ] || echo "$path"; done
}
traces() {
  local run=$1 slot=$2 i
  [ ! -e "$run" ] || echo "directory $run"
  [ ! -e "$LOCKS/slot-$slot" ] || echo "file $LOCKS/slot-$slot"
  grep -lsF -f <(echo "$run/") /proc/[0-9]*/cmdline | sed 's/^/process /' || true
  grep -lsF -f <(echo "/provisor-$slot-") /proc/[0-9]*/cgroup | sed 's/^/process in cgroup /' || true
  # of every process: a mount namespace that lives on is a trace too
  grep -sF -f <(echo "$run/") /proc/[0-9]*/mountinfo | sed 's/^/mount /' | head -5 || true
  grep -sF -f <(echo "$run/") /sys/block/loop*/loop/backing_file | sed 's/^/loop device /' || true
  find /sys/fs/cgroup -maxdepth 2 -name "provisor-$slot-*" | sed 's/^/cgroup /'
  { ip -4 -oneline address; ip -4 route show table all; } | grep -F "10.96.$slot." || true
  for ((i = 0; i < NODES_PER_SLOT; i++)); do
    { ip -4 -oneline address; ip -4 route show table all; } | grep -F "10.88.$((slot * NODES_PER_SLOT + i))." || true
  done
  # other clusters' nodes hold the settings as long as they live
  [ -d "$LOCKS/nodes" ] || diff "$work/before" <(machine_state) || true
}
no_traces() { local left; left=$(traces "$@"); [ -z "$left" ] || { echo "$left"; return 1; }; }
machine_state > "$work/before"
slot_of() { sed -n 's/^SLOT=//p' "$1/env"; }

# ---- A program and an image to deploy, whatever state Provisor itself is in
rustc --edition 2024 -O -o "$work/provisor" "$here/standin.rs"
version=$(sed -n 's|.*image: provisor/provisor:||p' "$repo/deploy/manifests/5-daemonset.yaml")
"$here/image.sh" "$work/provisor" "$work/provisor.tar" "docker.io/provisor/provisor:$version"
# The image follows the Dockerfile: what that does not copy is missing, what nobody knows is an error.
recipe() { sed "$1" "$repo/Dockerfile" > "$work/Dockerfile"; "$here/image.py" --file "$work/Dockerfile" --context "$repo" --built "/src/target/release/provisor=$2" --tag t:t --output "$work/t.tar"; }
refuses() { ! recipe "$@" 2> /dev/null; }
expect "image.sh refuses a Dockerfile that does not copy the program" 0 refuses '/target.release/d' "$work/provisor"
expect "image.sh refuses an instruction that it does not know" 0 refuses 's/^EXPOSE 8080/HEALTHCHECK NONE/' "$work/provisor"
expect "image.sh refuses a program with a library that the Dockerfile does not copy" 0 refuses '/libudev/d' "$(command -v udevadm)"

# ---- A control plane and a node
"$here/up.sh"
export KUBECONFIG=$RUN/kubeconfig/admin
slot=$(slot_of "$RUN")
expect "the default ServiceAccount exists" 0 kubectl get serviceaccount default
expect "the audit log is written" 5 grep -q '"auditID"' "$RUN/log/audit.log"
NODE_IMAGES=$work/provisor.tar "$here/node-up.sh" node-a
expect "the node is Ready" 0 kubectl wait --for=condition=Ready node/node-a --timeout=1s

# ---- A second cluster beside it
RUN=$work/other "$here/up.sh" > "$work/other.log"
RUN=$work/other "$here/node-up.sh" node-a >> "$work/other.log"
other=$(slot_of "$work/other")
expect "two clusters with a node of the same name do not share a slot" 0 [ "$slot" != "$other" ]
expect "and both nodes are Ready" 0 kubectl --kubeconfig "$work/other/kubeconfig/admin" wait --for=condition=Ready node/node-a --timeout=5s

# ---- Pods: their own network, logs, exec, the API from inside
kubectl apply -f - > /dev/null << Y
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  containers:
    - name: c
      image: docker.io/library/busybox:local
      imagePullPolicy: Never
      command: [sh, -c, "echo started; exec sleep infinity"]
      volumeMounts: [{name: bin, mountPath: /cluster, readOnly: true}]
  volumes: [{name: bin, hostPath: {path: $BIN}}]
Y
expect "a busybox pod runs" 60 kubectl wait --for=condition=Ready pod/plain --timeout=60s
logs_say() { kubectl logs plain | grep -q started; }
expect "its logs come through the API server" 20 logs_say
whoami() { kubectl exec plain -- /cluster/kubectl auth whoami -o 'jsonpath={.status.userInfo.username}' | grep -qx system:serviceaccount:default:default; }
expect "it reaches the API server at the in-cluster address, as its ServiceAccount" 20 whoami

# ---- The manifests, in one step, with the image made by the Dockerfile's recipe
kubectl apply -f "$repo/deploy/manifests" > /dev/null
expect "the DaemonSet rolls out" 60 kubectl -n provisor rollout status daemonset/provisor --timeout=60s
address=$(kubectl -n provisor get pod -l app.kubernetes.io/name=provisor -o 'jsonpath={.items[0].status.podIP}')
page() { curl -fsS -m 5 "http://$address:8080/" | grep -F "$1"; }
expect "its container sees node name, host processes and ConfigMap" 10 page "node=node-a host_pids=true config=true disks=0"
mkdir -p "$RUN/disks"
truncate -s 64M "$RUN/disks/a.img" "$RUN/disks/b.img"
loop_a=$(losetup --find --show "$RUN/disks/a.img") loop_b=$(losetup --find --show "$RUN/disks/b.img")
mkfs.ext4 -q -F "$loop_a"
"$here/in-node.sh" node-a mkdir -p /mnt/fast-disks/a
"$here/in-node.sh" node-a mount "$loop_a" /mnt/fast-disks/a
expect "a disk mounted in the node shows in the container" 10 page "disks=1"
can() { kubectl auth can-i "$1" "$2" --as=system:serviceaccount:provisor:provisor -q 2> /dev/null; }
cannot() { ! can "$@"; }
for verb in get list watch create patch delete; do can "$verb" persistentvolumes || die "not ok: may not $verb persistentvolumes"; done
for verb in update deletecollection; do cannot "$verb" persistentvolumes || die "not ok: may $verb persistentvolumes"; done
expect "the ServiceAccount may create Events of the new kind" 0 can create events.events.k8s.io
expect "and neither update Nodes" 0 cannot update nodes
expect "nor read claims" 0 cannot list persistentvolumeclaims

# ---- A Block volume in use: the kubelet holds a loop device over it that only the kubelet would have detached
kubectl apply -f - > /dev/null << Y
apiVersion: v1
kind: PersistentVolume
metadata: {name: block}
spec:
  capacity: {storage: 64Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: fast-disks
  volumeMode: Block
  persistentVolumeReclaimPolicy: Retain
  local: {path: $loop_b}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-a]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: block}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast-disks, volumeMode: Block, resources: {requests: {storage: 1Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: block}
spec:
  containers:
    - name: c
      image: docker.io/library/busybox:local
      imagePullPolicy: Never
      command: [sleep, infinity]
      volumeDevices: [{name: v, devicePath: /dev/v}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: block}}]
Y
expect "a pod with a Block volume runs" 60 kubectl wait --for=condition=Ready pod/block --timeout=60s

# ---- The end
"$here/down.sh"
expect "down.sh leaves nothing, with pods, mounts and a Block volume in use" 20 no_traces "$RUN" "$slot"
expect "the other cluster lives on" 0 kubectl --kubeconfig "$work/other/kubeconfig/admin" get --raw /readyz
RUN=$work/other "$here/down.sh" > /dev/null
expect "until it is ended, too" 20 no_traces "$work/other" "$other"
expect "down.sh on nothing is no error" 0 "$here/down.sh"

# ---- An owner that dies
sleep 600 & owner=$!
"$here/up.sh" --watch-pid "$owner" > "$work/log"
"$here/node-up.sh" --watch-pid "$owner" node-a >> "$work/log"
"$here/node-up.sh" node-b >> "$work/log"
slot=$(slot_of "$RUN")
expect "a cluster has two nodes" 0 kubectl wait --for=condition=Ready node/node-a node/node-b --timeout=5s
kill -KILL "$owner"; wait "$owner" 2> /dev/null || true
expect "the watchdog leaves nothing once the owner was killed" 60 no_traces "$RUN" "$slot"

# ---- Interrupted while it starts, by a signal to the script and by the death of the owner
"$here/up.sh" > "$work/log" 2>&1 & script=$!
expect "up.sh is half way" 30 [ -s "$RUN/pid/kube-apiserver" ]
slot=$(slot_of "$RUN")
kill -TERM "$script"; wait "$script" && die "not ok: up.sh succeeded although it was interrupted"
expect "an interrupted up.sh leaves nothing" 30 no_traces "$RUN" "$slot"
sleep 600 & owner=$!
OWNER_PID=$owner "$here/up.sh" > "$work/log" 2>&1 & script=$!
expect "up.sh is half way again" 30 [ -s "$RUN/pid/kube-apiserver" ]
slot=$(slot_of "$RUN")
kill -KILL "$owner"; wait "$owner" 2> /dev/null || true
wait "$script" && die "not ok: up.sh succeeded although its owner died"
expect "the watchdog leaves nothing when the owner dies while up.sh runs" 60 no_traces "$RUN" "$slot"

echo "$passed passed, 0 failed"
