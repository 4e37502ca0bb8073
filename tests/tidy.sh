#!/bin/bash
# tidy.sh COMMAND...: runs tests with a temporary directory of their own, and fails too when they leave anything in it
# or a loop device over a file of it.
set -euo pipefail
TMPDIR=$(mktemp -d "${TMPDIR:-/tmp}/provisor-tests-XXXXXX")
export TMPDIR
trap 'rm -rf --one-file-system "$TMPDIR"' EXIT

status=0
"$@" || status=$?
left=$(find "$TMPDIR" -mindepth 1 -maxdepth 3; losetup --list --noheadings --output NAME,BACK-FILE | grep -F "$TMPDIR/" || true)
if [ -n "$left" ]; then
  printf 'the tests left behind:\n%s\n' "$left" >&2
  [ "$status" != 0 ] || status=1
fi
exit "$status"
