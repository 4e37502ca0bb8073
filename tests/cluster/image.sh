#!/bin/bash
# image.sh BINARY OUT.tar [NAME]: the Provisor image from a built binary, by the Dockerfile's recipe, for machines without a container engine.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
repo=$(cd "$here/../.." && pwd)
binary=$1 out=$2 name=${3:-docker.io/provisor/provisor:dev}
[ -x "$binary" ] || { echo "no program at $binary (cargo build --release makes it)" >&2; exit 1; }
exec "$here/image.py" --file "$repo/Dockerfile" --context "$repo" --built "/src/target/release/provisor=$binary" --tag "$name" --output "$out"
