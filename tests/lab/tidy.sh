#!/bin/sh
# Waits for the lab to end, then removes what is left of it: tidy.sh BRIDGE CGROUP_MOUNT TAG < pipe-held-by-the-lab
bridge=$1 cgroup=$2 tag=$3
trap '' INT TERM HUP
while read -r _; do :; done
for link in /sys/class/net/"$tag"-*; do
    [ -e "$link" ] && ip link del "${link##*/}" 2>/dev/null
done
ip link del "$bridge" 2>/dev/null
tries=0
while [ -d "$cgroup/$tag" ] && [ $tries -lt 100 ]; do
    find "$cgroup/$tag" -depth -type d -exec rmdir {} + 2>/dev/null
    [ -d "$cgroup/$tag" ] && sleep 0.05
    tries=$((tries + 1))
done
umount "$cgroup" 2>/dev/null || umount -l "$cgroup" 2>/dev/null
exit 0
