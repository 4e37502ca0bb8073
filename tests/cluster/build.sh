#!/bin/bash
# Provides the programs and images of the test cluster, and prints nothing but "up to date" when they are there.
#   $BIN     etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl (one binary, six names), containerd, its shim, ctr
#   $IMAGES  pause.tar, busybox.tar
# PROVISOR_CLUSTER_BIN names a directory with ready programs; nothing is built then. Otherwise all is built from the Go module proxy into
# ${XDG_CACHE_HOME:-~/.cache}/provisor-cluster, once for each content of go.mod, go.sum and main.go.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
cd "$CLUSTER_SRC"
programs="etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl"

stamp() { cat go.mod go.sum main.go | sha256sum; }
image_stamp() { cat image.py images.sh "$(command -v busybox)" 2> /dev/null | sha256sum; }
programs_are_there() {
  if [ -n "${PROVISOR_CLUSTER_BIN:-}" ]; then
    for name in $programs containerd containerd-shim-runc-v2 ctr; do [ -x "$BIN/$name" ] || die "PROVISOR_CLUSTER_BIN=$BIN has no $name"; done
  else
    [ "$(cat "$BIN/.built" 2> /dev/null)" = "$(stamp)" ]
  fi
}
images_are_there() { [ "$(cat "$IMAGES/.built" 2> /dev/null)" = "$(image_stamp)" ]; }

if programs_are_there && images_are_there; then echo "up to date: $BIN"; exit 0; fi
../deps.sh build
mkdir -p "$CACHE"
exec 9>> "$CACHE/.build.lock"
flock -n 9 || { echo "another build is running: waiting for it"; flock 9; }

if ! programs_are_there; then
  version=$(sed -n 's|^\tk8s.io/kubernetes v||p' go.mod)
  minor=${version#1.}; minor=${minor%%.*}
  go=$(./go.sh)
  echo "building Kubernetes from source once, about 6 minutes on 2 cores ($version, with $("$go" env GOVERSION))"
  export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-buildvcs=false -mod=readonly -trimpath"
  mkdir -p "$BIN"
  rm -f "$BIN/.built"
  # Kubernetes' own build stamps its version by the linker; without it `kubectl version` says v0.0.0 and so does the kubelet
  x=k8s.io/component-base/version
  "$go" build -o "$BIN/kube" -ldflags "-s -w -X $x.gitVersion=v$version -X $x.gitMajor=1 -X $x.gitMinor=$minor -X $x.gitTreeState=clean" .
  for name in $programs; do ln -sfn kube "$BIN/$name"; done
  "$go" build -o "$BIN/" -ldflags "-s -w" tool
  stamp > "$BIN/.built"
  say "programs built: $BIN"
fi
if ! images_are_there; then
  ./images.sh "$IMAGES"
  image_stamp > "$IMAGES/.built"
  say "images built: $IMAGES"
fi
