#!/bin/bash
# deps.sh compile|test|build|go|control-plane|node: sees to it that the Debian packages are there that the step needs. As root it
# installs what is missing, for others it says what to install. When nothing is missing it asks no package manager.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin

declare -A package=(
  [cc]=gcc [/usr/include/stdlib.h]=libc6-dev [pkg-config]=pkg-config [libudev]=libudev-dev
  [losetup]=mount [unshare]=util-linux [nsenter]=util-linux [partx]=util-linux [mkfs.ext4]=e2fsprogs [mkfs.xfs]=xfsprogs
  [mkfs.btrfs]=btrfs-progs [sgdisk]=gdisk
  [curl]=curl [openssl]=openssl [flock]=util-linux [python3]=python3 [pip]=python3-pip [busybox]=busybox-static
  [runc]=runc [/usr/lib/cni/ptp]=containernetworking-plugins [/usr/lib/cni/host-local]=containernetworking-plugins
  [socat]=socat [ip]=iproute2 [udevadm]=udev
)
disks="losetup unshare nsenter mkfs.ext4 mkfs.xfs sgdisk"
case ${1:-} in
  compile) needs="cc /usr/include/stdlib.h pkg-config libudev" ;;
  test) needs="$disks partx mkfs.btrfs python3" ;;
  build) needs="flock python3 busybox" ;;
  go) needs="python3 pip" ;;
  control-plane) needs="curl openssl flock" ;;
  node) needs="curl openssl flock runc /usr/lib/cni/ptp /usr/lib/cni/host-local socat ip udevadm $disks" ;;
  *) echo "usage: deps.sh compile|test|build|go|control-plane|node" >&2; exit 2 ;;
esac

is_there() {
  case $1 in
    *.h) [ -e "$1" ] ;;
    /*) [ -x "$1" ] ;;
    libudev) pkg-config --exists libudev 2> /dev/null ;;
    pip) python3 -m pip --version > /dev/null 2>&1 ;;
    # only the static one runs in an image of its own
    busybox) command -v busybox > /dev/null && ! ldd "$(command -v busybox)" > /dev/null 2>&1 ;;
    *) command -v "$1" > /dev/null ;;
  esac
}
missing() {
  local need
  for need in $needs; do is_there "$need" || echo "${package[$need]}"; done | sort -u
}

# Often a module that nobody has loaded yet; a test that misses it says so.
[ "${1:-}" != test ] || [ -e /sys/class/zram-control ] || modprobe zram 2> /dev/null || true

packages=$(missing | tr '\n' ' ')
[ -n "$packages" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
  echo "Missing ($1). As root: apt-get install --no-install-recommends $packages" >&2
  exit 1
fi
echo "installing: $packages"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp); trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of names
{ apt-get -q update && apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends $packages; } > "$log" 2>&1 < /dev/null ||
  { tail -20 "$log" >&2; exit 1; }
packages=$(missing | tr '\n' ' ')
[ -z "$packages" ] || { echo "installed, but still not found: $packages" >&2; exit 1; }
