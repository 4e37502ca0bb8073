# shellcheck shell=bash
# shellcheck disable=SC2034 # the names below are for the scripts that read this file
# What the scripts of this directory share: where things are, whose process a pid is, and who uses which part of the machine.

CLUSTER_SRC=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/provisor-cluster
BIN=${PROVISOR_CLUSTER_BIN:-$CACHE/bin}
IMAGES=$CACHE/node-images
export RUN=${RUN:-/tmp/provisor-cluster}
MARKER=$RUN/.provisor-cluster # up.sh makes it; without it down.sh removes nothing

if [ "$(id -u)" = 0 ]; then LOCKS=/run/lock/provisor-cluster; else LOCKS=${XDG_RUNTIME_DIR:-/tmp}/provisor-cluster-$(id -u); fi

begin=${EPOCHREALTIME/[.,]/}
say() { local us=$((${EPOCHREALTIME/[.,]/} - begin)); printf '%4d.%02d s  %s\n' $((us / 1000000)) $((us % 1000000 / 10000)) "$*"; }
die() { printf '%s\n' "$*" >&2; exit 1; }

# within SECONDS COMMAND...: repeats a cheap command until it succeeds.
within() {
  local end=$((SECONDS + $1)); shift
  until "$@" > /dev/null 2>&1; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.1; done
}

# ---- Processes. A pid alone is no identity: it is used again. With the start time beside it, it is.
started_at() { # PID -> clock ticks since boot; fails when there is no such process or only its zombie is left
  local stat rest
  { read -r stat < "/proc/$1/stat"; } 2> /dev/null || return 1
  rest=${stat##*) } # the command's name may hold blanks and brackets
  # shellcheck disable=SC2086 # the fields are numbers and one letter
  set -- $rest
  [ "$1" != Z ] && [ "$1" != X ] && echo "${20}"
}
record() { # DIR NAME PID: DIR/NAME holds the pid, DIR/.NAME its start time
  started_at "$3" > "$1/.$2" || true
  echo "$3" > "$1/$2"
}
is_alive() { # DIR NAME
  local pid start
  { read -r pid < "$1/$2" && read -r start < "$1/.$2"; } 2> /dev/null || return 1
  [ "$(started_at "$pid")" = "$start" ]
}
is_gone() { ! is_alive "$@"; }
# start DIR NAME LOG COMMAND...: a daemon in a session of its own, so that a terminal's Ctrl-C reaches only the script. It keeps no
# descriptor of ours: not a lock, and not the pipe at whose end a caller waits. Only the slot's lock, see claim_slot.
slot_fd=-
start() {
  local dir=$1 name=$2 log=$3; shift 3
  (
    for fd in "/proc/$BASHPID/fd"/*; do
      fd=${fd##*/}
      case $fd in 0 | 1 | 2 | "$slot_fd") ;; *) eval "exec $fd>&-" ;; esac
    done
    exec setsid nohup "$@"
  ) > "$log" 2>&1 < /dev/null &
  record "$dir" "$name" $!
}
# stop DIR GRACE NAME...: asks all of them to end, kills what is left after GRACE seconds.
stop() {
  local dir=$1 grace=$2 name signal; shift 2
  for signal in TERM KILL; do
    for name; do
      # a watchdog becomes down.sh: it must not end itself
      if is_alive "$dir" "$name" && [ "$(< "$dir/$name")" != $$ ]; then kill -s "$signal" "$(< "$dir/$name")" 2> /dev/null || true; fi
    done
    for name; do
      [ "$(cat "$dir/$name" 2> /dev/null)" = $$ ] || within "$grace" is_gone "$dir" "$name" || true
    done
    grace=10
  done
  for name; do rm -f "$dir/$name" "$dir/.$name"; done
}
# watch_owner DIR PID COMMAND...: runs COMMAND once PID is no more, however it ended.
watch_owner() {
  local dir=$1 pid=$2 start; shift 2
  start=$(started_at "$pid") || die "the owner, process $pid, is not running"
  start "$dir" watchdog "$dir/watchdog.log" "$CLUSTER_SRC/watchdog.sh" "$pid" "$start" "$@"
}

# ---- Certificates: elliptic, signed by the cluster's own authority.
certificate() { # NAME SUBJECT EXTENSIONS
  local pki=$RUN/pki
  [ ! -s "$pki/$1.crt" ] || return 0
  openssl ecparam -name prime256v1 -genkey -noout -out "$pki/$1.key"
  openssl req -new -key "$pki/$1.key" -subj "$2" -out "$pki/$1.csr" 2> /dev/null
  openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -set_serial "0x$(openssl rand -hex 8)" -days 365 -out "$pki/$1.crt" \
    -extfile <(printf 'keyUsage=critical,digitalSignature,keyEncipherment\n%b' "$3") 2> /dev/null
  rm -f "$pki/$1.csr"
}
kubeconfig() { # NAME of a certificate
  local pki=$RUN/pki file=$RUN/kubeconfig/$1
  (
    umask 077
    cat > "$file" << K
apiVersion: v1
kind: Config
clusters: [{name: provisor, cluster: {server: "https://127.0.0.1:$API_PORT", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
contexts: [{name: provisor, context: {cluster: provisor, user: $1}}]
current-context: provisor
K
  )
}
api() { curl -fsS -m 5 --cacert "$RUN/pki/ca.crt" --cert "$RUN/pki/admin.crt" --key "$RUN/pki/admin.key" "https://127.0.0.1:$API_PORT$1"; }

# ---- Slots: several clusters may run at once. Slot N means ports from 21000 + 40 N, services in 10.96.N.0/24, and the pods of
# node i in 10.88.(4 N + i).0/24. A slot is taken by a file lock on descriptor 9, which every daemon of the cluster inherits: it is free
# again when the last of them has ended, whatever ended it.
SLOTS=64 NODES_PER_SLOT=4
port_is_free() { ! (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }
slot_is_free() { # asks the machine, since others than us use ports and addresses too
  local port nets i
  for port in {0..4} {10..17}; do port_is_free $((21000 + $1 * 40 + port)) || return 1; done
  command -v ip > /dev/null || return 0
  nets=$(ip -4 -oneline address; ip -4 route show table all)
  [[ $nets != *"10.96.$1."* ]] || return 1
  for ((i = 0; i < NODES_PER_SLOT; i++)); do [[ $nets != *"10.88.$(($1 * NODES_PER_SLOT + i))."* ]] || return 1; done
}
claim_slot() { # sets SLOT
  local file
  for ((SLOT = 0; SLOT < SLOTS; SLOT++)); do
    file=$LOCKS/slot-$SLOT
    { mkdir -p "$LOCKS" && exec 9>> "$file"; } || continue
    # down.sh unlinks the file of a free slot: the one that we locked must still be the one with this name
    if flock -n 9 && [ "$file" -ef /proc/self/fd/9 ] && slot_is_free "$SLOT"; then slot_fd=9; return; fi
    exec 9>&-
  done
  die "no free slot: $SLOTS clusters run, or other programs use the ports from 21000"
}
release_slot() { # SLOT: only its file; another cluster that holds it keeps it
  local file=$LOCKS/slot-$1
  exec 9>&- # a watchdog that became down.sh still holds it
  [ -e "$file" ] || return 0
  (exec 9>> "$file"; if flock -n 9 && [ "$file" -ef /proc/self/fd/9 ]; then rm -f "$file"; fi)
  rmdir "$LOCKS" 2> /dev/null || true
}

# ---- Addresses and routes, written down before they are made, so that down.sh finds them whatever happened in between.
net_add() { # address|route VALUE
  echo "$1 $2" >> "$RUN/net"
  case $1 in
    address) ip address add "$2" dev lo ;;
    # traffic for a Service or a pod that is not there ends here, and not at the machine's default gateway
    route) ip route add unreachable "$2" ;;
  esac
}
net_remove() { # PREFIX of the addresses; all without
  local kind value left
  [ -e "$RUN/net" ] || return 0
  exec 5>> "$RUN/net.lock"; flock -w 60 5 || return
  left=$(awk -v p="${1:-}" 'index($2, p) != 1' "$RUN/net")
  while read -r kind value; do
    case $kind-$value in
      address-"${1:-}"*) ip address del "$value" dev lo 2> /dev/null || true ;;
      route-"${1:-}"*) ip route del unreachable "$value" 2> /dev/null || true ;;
    esac
  done < "$RUN/net"
  printf '%s\n' "$left" > "$RUN/net"
  exec 5>&-
}

# ---- The machine's own state that nodes change: kernel settings (kubelet, CNI) and directories that a kubelet hard-codes. The first node
# on the machine writes down how they were, the last one puts them back; both under one lock, for nodes of all clusters.
SYSCTLS="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes"
# The node gets private directories over these.
PRIVATE_DIRS="/var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /run/containerd /run/netns /mnt"
with_machine() { # FUNCTION ARGS...
  (
    until { mkdir -p "$LOCKS" && exec 8>> "$LOCKS/machine.lock"; } 2> /dev/null && flock 8 && [ "$LOCKS/machine.lock" -ef /proc/self/fd/8 ]; do :; done
    "$@"
  )
}
machine_join() { # ID STATE_DIR
  local key dir
  mkdir -p "$LOCKS/nodes"
  if [ ! -e "$LOCKS/sysctl" ]; then
    for key in $SYSCTLS net/ipv4/ip_forward; do [ ! -r "/proc/sys/$key" ] || echo "$key $(< "/proc/sys/$key")"; done > "$LOCKS/sysctl.new"
    mv "$LOCKS/sysctl.new" "$LOCKS/sysctl"
  fi
  for dir in $PRIVATE_DIRS /run/udev /run/mount; do make_dir "$dir"; done
  echo "$2" > "$LOCKS/nodes/$1"
}
make_dir() {
  [ ! -d "$1" ] || return 0
  make_dir "$(dirname "$1")"
  echo "$1" >> "$LOCKS/directories"
  mkdir "$1"
}
machine_settle() { # once a kubelet is up its settings go back; IP forwarding stays, CNI sets it at every pod
  local key value
  [ ! -e "$LOCKS/sysctl" ] || while read -r key value; do
    [ "$key" = net/ipv4/ip_forward ] || [ "$(< "/proc/sys/$key")" = "$value" ] || echo "$value" > "/proc/sys/$key"
  done < "$LOCKS/sysctl"
}
machine_leave() { # ID
  local entry state key value dir
  rm -f "$LOCKS/nodes/$1"
  for entry in "$LOCKS"/nodes/*; do
    [ -e "$entry" ] || continue
    state=$(< "$entry")
    if [ -d "$state/pid" ] && { is_alive "$state/pid" containerd || is_alive "$state/pid" kubelet || is_alive "$state/pid" node-up; }; then return; fi
    rm -f "$entry" # its node was killed
  done
  [ ! -e "$LOCKS/sysctl" ] || while read -r key value; do
    [ "$(< "/proc/sys/$key")" = "$value" ] || echo "$value" > "/proc/sys/$key"
  done < "$LOCKS/sysctl"
  # Not earlier: removing a directory that is a mount point in another node's namespace takes that mount away.
  [ ! -e "$LOCKS/directories" ] || tac "$LOCKS/directories" | while read -r dir; do rmdir "$dir" 2> /dev/null || true; done
  rm -f "$LOCKS/sysctl" "$LOCKS/directories" "$LOCKS/machine.lock"
  rmdir "$LOCKS/nodes" "$LOCKS" 2> /dev/null || true
}

# detach_loops DIR: loop devices over files below DIR; one that is still mounted goes when it is unmounted.
detach_loops() {
  local file
  for file in /sys/block/loop*/loop/backing_file; do
    case $(cat "$file" 2> /dev/null) in "$1"/*) file=${file#/sys/block/}; losetup -d "/dev/${file%%/*}" 2> /dev/null || true ;; esac
  done
}
# unmount_below DIR: in this mount namespace, the innermost first.
unmount_below() {
  local path
  awk -v d="$1/" 'index($5, d) == 1 { print $5 }' /proc/self/mountinfo | tac | while read -r path; do umount "$(printf '%b' "$path")" || true; done
}
# cgroup_dirs NAME: the directories of a cgroup below the root: one in each hierarchy of version 1, one in all with version 2.
cgroup_dirs() {
  local root
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$1"; return; fi
  for root in /sys/fs/cgroup/*/; do [ -L "${root%/}" ] || [ ! -e "$root/cgroup.procs" ] || echo "$root$1"; done
}
