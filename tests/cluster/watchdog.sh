#!/bin/bash
# watchdog.sh PID START_TIME COMMAND...: waits for the end of the process that started at START_TIME as PID, then becomes COMMAND.
# up.sh and node-up.sh start it for an owner (a test, a terminal) that may be killed before it can clean up.
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"
pid=$1 start=$2; shift 2
while [ "$(started_at "$pid")" = "$start" ]; do sleep 0.5; done
echo "$(date -u +%FT%TZ) owner $pid is gone: $*"
# A script that is still starting things must end before what it started can be ended; each cleans up after itself when told to stop.
for script in up node-up; do
  for file in "$RUN"/pid/"$script" "$RUN"/node-*/pid/"$script"; do
    [ -e "$file" ] || continue
    dir=$(dirname "$file")
    if is_alive "$dir" "$script"; then kill "$(< "$file")" || true; fi
    within 60 is_gone "$dir" "$script" || true
  done
done
exec "$@"
