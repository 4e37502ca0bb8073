#!/bin/sh
# Runs what cargo has built. Tests, benchmarks and examples get a mount namespace and a PID namespace of
# their own: nothing they mount outlives them or is seen outside, and nothing else on the machine counts as
# a user of their volumes. Beside a real cluster they keep the machine's processes in view, as the daemon
# must see the kubelet. Without root they run as they are. The program itself always does: it must see what is
# mounted later.
case "$1" in
*/deps/* | */examples/*)
    if [ "$(id -u)" = 0 ] && [ -n "${PROVISOR_TEST_RUN:-}" ]; then
        exec unshare --mount --propagation private -- "$@"
    elif [ "$(id -u)" = 0 ]; then
        # The shell stays as process 1 and reaps orphans.
        exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc -- \
            sh -c '"$@"; exit "$?"' sh "$@"
    fi
    ;;
esac
exec "$@"
