#!/bin/bash
# Make sure that what is needed is there: `deps.sh build` for compiling, `deps.sh real` for the real cluster too.
# Installs Debian packages only when something is missing and only as root; otherwise says what to install.
set -euo pipefail

missing=()
need() { # package, then a command that succeeds when it is there
  local package=$1
  shift
  "$@" > /dev/null 2>&1 || missing+=("$package")
}

case ${1:-build} in
  build)
    need pkg-config command -v pkg-config
    need gcc command -v cc
    need libc6-dev test -e /usr/include/stdlib.h
    need libudev-dev pkg-config --exists libudev
    ;;
  *)
    echo "usage: deps.sh build" >&2
    exit 2
    ;;
esac
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
  echo "missing packages: ${missing[*]}" >&2
  echo "install them (Debian's names) and run this again" >&2
  exit 1
fi
echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
