#!/bin/bash
# images.sh DIR: the two images that every cluster needs, made of Debian's static busybox.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
out=$1; mkdir -p "$out"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
busybox=$(command -v busybox)

mkdir -p "$work"/root/{bin,dev,etc,proc,root,sys,tmp}
chmod 1777 "$work/root/tmp"
cp "$busybox" "$work/root/bin/busybox"
for applet in $("$busybox" --list); do [ "$applet" = busybox ] || ln -s busybox "$work/root/bin/$applet"; done
echo 'root:x:0:0:root:/root:/bin/sh' > "$work/root/etc/passwd"
printf 'FROM scratch\nCOPY root/ /\nENV PATH=/bin\nCMD ["sh"]\n' > "$work/Busybox"
# The sandbox image needs a process that waits and nothing else.
printf 'FROM scratch\nCOPY root/bin/busybox /bin/busybox\nENTRYPOINT ["/bin/busybox", "sleep", "infinity"]\n' > "$work/Pause"

"$here/image.py" --file "$work/Busybox" --context "$work" --tag docker.io/library/busybox:local --output "$out/busybox.tar"
"$here/image.py" --file "$work/Pause" --context "$work" --tag docker.io/provisor/pause:local --output "$out/pause.tar"
