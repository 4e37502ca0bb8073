#!/bin/bash
# node-up.sh [--watch-pid PID] [NAME]: adds a real node (containerd, kubelet) to the cluster in $RUN and returns when it is Ready. Root only.
# The node has a mount namespace of its own whose tree is shared, as on a real node; in-node.sh runs a command in it.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
owner=${NODE_OWNER_PID:-} name=node-a inside=
while [ $# -gt 0 ]; do
  case $1 in
    --watch-pid) owner=$2; shift 2 ;;
    --inside) inside=yes; shift ;;
    -*) die "usage: node-up.sh [--watch-pid PID] [NAME]" ;;
    *) name=$1; shift ;;
  esac
done
dir=$RUN/node-$name
[ "$(id -u)" = 0 ] || die "a node needs root"
[ -e "$RUN/env" ] || die "no cluster in $RUN: up.sh starts one"
# shellcheck source=/dev/null
. "$RUN/env"
cgroup=provisor-$SLOT-$name

# ---- Inside the node's mount namespace: everything that must see its mounts starts here
if [ -n "$inside" ]; then
  # "/" need not be a shared mount outside (here: private). Inside it must be, for HostToContainer and Bidirectional to work.
  mount --make-rshared /
  # Two kubelets would collect each other's logs and sockets, and the class directories under /mnt would be left on the machine.
  for path in $PRIVATE_DIRS; do
    mkdir -p "$dir/host$path"
    mount --bind "$dir/host$path" "$path"
  done
  PATH=$BIN:$PATH start "$dir/pid" containerd "$dir/log/containerd.log" "$BIN/containerd" --config "$dir/containerd.toml" -l "${CONTAINERD_LOG:-warn}"
  ctr() { "$BIN/ctr" -a "$dir/containerd.sock" -n k8s.io "$@"; }
  within 60 ctr version || die "containerd does not answer"
  # --local: the transfer service of containerd 2 wants a registry's idea of the image
  for tar in "$IMAGES"/*.tar ${NODE_IMAGES:-}; do
    ctr images import --local "$tar" > "$dir/log/import.log" 2>&1 || die "import of $tar: $(< "$dir/log/import.log")"
  done
  # shellcheck disable=SC2086 # several arguments
  start "$dir/pid" kubelet "$dir/log/kubelet.log" "$BIN/kubelet" --config="$dir/kubelet.yaml" --kubeconfig="$RUN/kubeconfig/kubelet-$name" \
    --hostname-override="$name" --node-ip="$NODE_IP" --root-dir="$dir/kubelet" --node-labels="${NODE_LABELS:-topology.kubernetes.io/zone=zone-$INDEX}" \
    --v="${KV:-2}" ${KUBELET_ARGS:-}
  exit 0
fi

case $name in *[!a-z0-9.-]* | "") die "not a node name: $name" ;; esac
[ ${#name} -le 20 ] || die "a node name of more than 20 characters makes socket paths too long: $name"
[ ! -e "$dir" ] || die "node $name is there already; node-down.sh $name removes it"
for path in $PRIVATE_DIRS; do
  # they are covered in the node
  for used in "$RUN" "$BIN" "$IMAGES"; do case $used/ in "$path"/*) die "$used is below $path: choose another place (RUN, XDG_CACHE_HOME)" ;; esac; done
done
"$CLUSTER_SRC/../deps.sh" node
begin=${EPOCHREALTIME/[.,]/}
mkdir -p "$dir"/{cni,cni-data,containerd,host,kubelet,log,pid,state}
record "$dir/pid" node-up $$

finished=
undo() {
  local status=$?
  trap '' INT TERM HUP
  rm -f "$dir/pid/node-up" "$dir/pid/.node-up"
  [ -z "$finished" ] || exit "$status"
  echo "node-up.sh did not finish (status $status): taking down what it started" >&2
  tail -n 5 "$dir"/log/*.log >&2 || true
  "$CLUSTER_SRC/node-down.sh" "$name" >&2
  exit "$((status ? status : 1))"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
[ -z "$owner" ] || watch_owner "$dir/pid" "$owner" "$CLUSTER_SRC/node-down.sh" "$name"

# ---- Its place in the cluster: an index that no other node has
for ((INDEX = 0; INDEX < NODES_PER_SLOT; INDEX++)); do mkdir "$RUN/index-$INDEX" 2> /dev/null && break; done
[ "$INDEX" -lt "$NODES_PER_SLOT" ] || die "a cluster has $NODES_PER_SLOT nodes at most"
echo "$INDEX" > "$dir/index"
kubelet_port=$((21000 + SLOT * 40 + 10 + INDEX * 2))
subnet=10.88.$((SLOT * NODES_PER_SLOT + INDEX))
# The API server finds the kubelet by this address. It can't be 127.x (the kubelet refuses), and a name would need a line in /etc/hosts.
NODE_IP=$subnet.254

with_machine machine_join "$cgroup" "$dir"
{
  flock -w 60 6 || die "another node-up.sh holds $RUN/net.lock"
  # The first node brings the in-cluster address of the API server: on lo, so that pods with a network of their own reach it too. One
  # socat stands in for kube-proxy, there is but this one Service.
  if ! is_alive "$RUN/pid" service-address; then
    grep -qs "^address $SVC_IP/32$" "$RUN/net" || { net_add address "$SVC_IP/32"; net_add route "$SVC_CIDR"; }
    start "$RUN/pid" service-address "$RUN/log/service-address.log" socat "TCP-LISTEN:443,bind=$SVC_IP,fork,reuseaddr" "TCP:127.0.0.1:$API_PORT"
  fi
  grep -qs "^address $NODE_IP/32$" "$RUN/net" || { net_add address "$NODE_IP/32"; net_add route "$subnet.0/24"; }
} 6>> "$RUN/net.lock"
certificate "kubelet-$name" "/O=system:nodes/CN=system:node:$name" "extendedKeyUsage=clientAuth,serverAuth\nsubjectAltName=DNS:$name,DNS:localhost,IP:127.0.0.1,IP:$NODE_IP\n"
kubeconfig "kubelet-$name"

# An overlay on an overlay (a CI job inside a container) does not work.
snapshotter=overlayfs
[ "$(stat -f -c %T "$dir")" != overlayfs ] || snapshotter=native
cat > "$dir/containerd.toml" << C
version = 3
root = "$dir/containerd"
state = "$dir/state"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "$snapshotter"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "docker.io/provisor/pause:local"
[plugins."io.containerd.cri.v1.runtime"]
  # Without CAP_SYS_RESOURCE (a CI job inside a container) runc may not lower oom_score_adj, and each sandbox would die.
  restrict_oom_score_adj = true
  # The network namespaces go away with the node's mount namespace.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "$dir/cni"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
C
cat > "$dir/cni/10-ptp.conflist" << C
{
  "cniVersion": "0.4.0", "name": "$cgroup",
  "plugins": [{
    "type": "ptp", "ipMasq": false,
    "ipam": {
      "type": "host-local", "dataDir": "$dir/cni-data", "routes": [{"dst": "0.0.0.0/0"}],
      "ranges": [[{"subnet": "$subnet.0/24", "rangeEnd": "$subnet.250"}]]
    }
  }]
}
C
cat > "$dir/kubelet.yaml" << C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
port: $kubelet_port
readOnlyPort: 0
healthzBindAddress: 127.0.0.1
healthzPort: $((kubelet_port + 1))
tlsCertFile: $RUN/pki/kubelet-$name.crt
tlsPrivateKeyFile: $RUN/pki/kubelet-$name.key
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$dir/containerd.sock
volumePluginDir: $dir/volume-plugins
runtimeRequestTimeout: 1m
cgroupDriver: cgroupfs
cgroupRoot: /$cgroup
failCgroupV1: false
failSwapOn: false
# A test machine's full disk is no reason to evict the pods under test.
evictionHard: {memory.available: 100Mi}
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
resolvConf: ""
maxPods: 100
syncFrequency: 10s
volumeStatsAggPeriod: 5s
nodeStatusUpdateFrequency: 5s
serializeImagePulls: false
C

# A cgroup of its own, else each kubelet removes the other's pod cgroups as orphans.
for path in $(cgroup_dirs "$cgroup"); do
  mkdir -p "$path"
  for file in cpuset.cpus cpuset.mems; do # version 1 starts a cpuset empty
    [ ! -e "$path/$file" ] || [ -n "$(< "$path/$file")" ] || cat "$(dirname "$path")/$file" > "$path/$file"
  done
done
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  # shellcheck disable=SC2046 # one word for each controller
  printf '+%s ' $(< /sys/fs/cgroup/cgroup.controllers) > /sys/fs/cgroup/cgroup.subtree_control || true
fi

# The Node object outlives node-down.sh, as it does a power cut: a heartbeat from before is not of this kubelet.
heartbeat() { # of a node that is Ready
  api "/api/v1/nodes/$name" 2> /dev/null | python3 -c '
import json, sys
try: print(*(c["lastHeartbeatTime"] for c in json.load(sys.stdin)["status"]["conditions"] if c["type"] == "Ready" and c["status"] == "True"))
except (ValueError, KeyError): pass' | grep .
}
before=$(heartbeat || true)
export NODE_IP INDEX
unshare --mount --propagation private "$CLUSTER_SRC/node-up.sh" --inside "$name"
say "containerd, images and kubelet started"

end=$((SECONDS + 120))
until heartbeat=$(heartbeat) && [ "$heartbeat" != "$before" ]; do
  is_alive "$dir/pid" kubelet || die "the kubelet died"
  [ "$SECONDS" -lt "$end" ] || die "node $name: not Ready within 120 s"
  sleep 0.1
done
# The kubelet has set its kernel settings by now.
with_machine machine_settle
finished=yes
say "node $name is Ready"
