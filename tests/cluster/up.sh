#!/bin/bash
# up.sh [--watch-pid PID]: starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, with RBAC, NodeRestriction and
# an audit log, and returns when the default ServiceAccount exists. README.md lists the variables and what is where in $RUN.
# It needs no root. When it fails or is interrupted, it takes down what it started.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
owner=${OWNER_PID:-}
while [ $# -gt 0 ]; do
  case $1 in
    --watch-pid) owner=$2; shift 2 ;;
    *) die "usage: up.sh [--watch-pid PID]" ;;
  esac
done
case $RUN in /*) ;; *) die "RUN must be an absolute path: $RUN" ;; esac
# the longest socket below it must fit into the kernel's 107 bytes
[ ${#RUN} -le 60 ] || die "RUN is too long for the sockets in it (60 characters at most): $RUN"

"$CLUSTER_SRC/../deps.sh" control-plane
"$CLUSTER_SRC/build.sh"
begin=${EPOCHREALTIME/[.,]/}

# ---- A state directory of our own, never one that holds somebody's files
if [ -e "$MARKER" ]; then
  for file in "$RUN"/pid/*; do
    [ ! -e "$file" ] || ! is_alive "$RUN/pid" "${file##*/}" || die "already running in $RUN ($(basename "$file"), process $(< "$file")); down.sh stops it"
  done
  KEEP='' "$CLUSTER_SRC/down.sh" # what a killed cluster left
elif [ -e "$RUN" ] && [ -n "$(ls -A "$RUN")" ]; then
  die "$RUN is not empty and not the state of a cluster: choose another RUN"
fi
mkdir -p "$RUN"/{pki,log,pid,kubeconfig,etcd}
: > "$MARKER"
chmod 700 "$RUN/etcd" "$RUN/pki"
record "$RUN/pid" up $$
[ -z "$owner" ] || watch_owner "$RUN/pid" "$owner" "$CLUSTER_SRC/down.sh"

finished=
undo() {
  local status=$?
  trap '' INT TERM HUP
  rm -f "$RUN/pid/up" "$RUN/pid/.up"
  [ -z "$finished" ] || exit "$status"
  exec 9>&- # the slot's lock: down.sh takes it to remove the file
  echo "up.sh did not finish (status $status): taking down what it started" >&2
  "$CLUSTER_SRC/down.sh" >&2
  exit "$((status ? status : 1))"
}
trap undo EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

claim_slot
base=$((21000 + SLOT * 40))
API_PORT=${API_PORT:-$base} ETCD_PORT=${ETCD_PORT:-$((base + 1))} ETCD_PEER_PORT=${ETCD_PEER_PORT:-$((base + 2))}
KCM_PORT=${KCM_PORT:-$((base + 3))} SCHED_PORT=${SCHED_PORT:-$((base + 4))}
SVC_CIDR=${SVC_CIDR:-10.96.$SLOT.0/24} SVC_IP=${SVC_CIDR%.*}.1
for name in SLOT API_PORT ETCD_PORT SVC_CIDR SVC_IP; do echo "$name=${!name}"; done > "$RUN/env"

# ---- Certificates and kubeconfigs
pki=$RUN/pki
openssl ecparam -name prime256v1 -genkey -noout -out "$pki/ca.key"
openssl req -x509 -new -key "$pki/ca.key" -subj /CN=provisor-test-ca -days 365 -out "$pki/ca.crt" \
  -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign,digitalSignature 2> /dev/null
openssl ecparam -name prime256v1 -genkey -noout -out "$pki/sa.key"
openssl ec -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2> /dev/null
client="extendedKeyUsage=clientAuth\n"
certificate apiserver /CN=kube-apiserver "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,IP:::1,IP:$SVC_IP,DNS:localhost,DNS:kubernetes.default.svc\n"
certificate admin /O=system:masters/CN=admin "$client"
certificate apiserver-kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client "$client"
certificate controller-manager /CN=system:kube-controller-manager "$client"
certificate scheduler /CN=system:kube-scheduler "$client"
for name in admin controller-manager scheduler; do kubeconfig "$name"; done
cat > "$RUN/audit-policy.yaml" << K
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: ${AUDIT_LEVEL:-Metadata}}]
K
say certificates

daemon() { local name=$1; shift; start "$RUN/pid" "$name" "$RUN/log/$name.log" "$@"; }
# until_ok NAME WHAT COMMAND...: at most 120 s, and not longer than NAME lives
until_ok() {
  local name=$1 what=$2 end=$((SECONDS + 120)); shift 2
  until "$@" > /dev/null 2>&1; do
    if ! is_alive "$RUN/pid" "$name" || [ "$SECONDS" -ge "$end" ]; then
      tail -20 "$RUN/log/$name.log" >&2
      die "$name: $what: $(is_alive "$RUN/pid" "$name" && echo "not within 120 s" || echo "it died")"
    fi
    sleep 0.1
  done
  say "$name: $what"
}
# shellcheck disable=SC2206 # the variables hold several arguments
{ etcd_args=(${ETCD_ARGS:-}) apiserver_args=(${APISERVER_ARGS:-}) kcm_args=(${KCM_ARGS:-}) sched_args=(${SCHED_ARGS:-}); }

# Nothing here needs to outlive a power cut: without fsync etcd answers many times faster on a busy disk.
daemon etcd "$BIN/etcd" --name t --data-dir "$RUN/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls "http://127.0.0.1:$ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$ETCD_PORT" \
  --listen-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$ETCD_PEER_PORT" \
  --initial-cluster "t=http://127.0.0.1:$ETCD_PEER_PORT" "${etcd_args[@]}"
until_ok etcd healthy curl -fs -m 2 "http://127.0.0.1:$ETCD_PORT/health"

# Endpoints may not hold loopback addresses: no endpoint reconciler, node-up.sh forwards the service address instead.
daemon kube-apiserver "$BIN/kube-apiserver" --v="${V:-1}" --bind-address=127.0.0.1 --secure-port="$API_PORT" \
  --advertise-address=127.0.0.1 --endpoint-reconciler-type=none --etcd-servers="http://127.0.0.1:$ETCD_PORT" \
  --service-cluster-ip-range="$SVC_CIDR" --allow-privileged=true --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
  --client-ca-file="$pki/ca.crt" --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --service-account-issuer=https://kubernetes.default.svc --api-audiences=https://kubernetes.default.svc \
  --kubelet-client-certificate="$pki/apiserver-kubelet-client.crt" --kubelet-client-key="$pki/apiserver-kubelet-client.key" \
  --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP \
  --audit-log-path="$RUN/log/audit.log" --audit-policy-file="$RUN/audit-policy.yaml" --audit-log-maxsize=200 --audit-log-maxbackup=2 \
  --profiling=false "${apiserver_args[@]}"
until_ok kube-apiserver ready api /readyz

# Only now: started earlier these two exit, since RBAC's bootstrap roles exist once the API server is ready.
# A Node that a test makes by hand has no heartbeats: the long grace period keeps it alive.
daemon kube-controller-manager "$BIN/kube-controller-manager" --v="${V:-1}" --bind-address=127.0.0.1 --secure-port="$KCM_PORT" \
  --kubeconfig="$RUN/kubeconfig/controller-manager" --authentication-kubeconfig="$RUN/kubeconfig/controller-manager" \
  --authorization-kubeconfig="$RUN/kubeconfig/controller-manager" --authentication-tolerate-lookup-failure=true --leader-elect=false \
  --use-service-account-credentials --kube-api-qps=200 --kube-api-burst=400 --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" \
  --node-monitor-grace-period="${NODE_GRACE:-24h}" --service-cluster-ip-range="$SVC_CIDR" --profiling=false "${kcm_args[@]}"
daemon kube-scheduler "$BIN/kube-scheduler" --v="${V:-1}" --bind-address=127.0.0.1 --secure-port="$SCHED_PORT" \
  --kubeconfig="$RUN/kubeconfig/scheduler" --authentication-kubeconfig="$RUN/kubeconfig/scheduler" \
  --authorization-kubeconfig="$RUN/kubeconfig/scheduler" --authentication-tolerate-lookup-failure=true --leader-elect=false \
  --profiling=false "${sched_args[@]}"
until_ok kube-controller-manager healthy curl -kfs -m 2 "https://127.0.0.1:$KCM_PORT/healthz"
until_ok kube-scheduler healthy curl -kfs -m 2 "https://127.0.0.1:$SCHED_PORT/healthz"
until_ok kube-controller-manager "made the default ServiceAccount" api /api/v1/namespaces/default/serviceaccounts/default
finished=yes
say "ready: KUBECONFIG=$RUN/kubeconfig/admin"
