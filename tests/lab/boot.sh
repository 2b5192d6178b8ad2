#!/bin/sh
# What becomes PID 1 of a lab host. Runs inside fresh namespaces: makes a root file system that is a throw-away layer over
# this machine's, mounts what systemd wants to see, and becomes systemd.
#
#   boot.sh FOLDER HOSTNAME BOUND...      FOLDER holds seed/ (files that differ from this machine's); BOUND are paths
#                                         that are the same inside and out
# The network comes from outside: nothing goes on until FOLDER/network is there.
set -eu
folder=$1 name=$2
shift 2
root=$folder/root
until [ -e "$folder/network" ]; do sleep 0.01; done

hostname "$name"
mount --make-rprivate /
mount -t tmpfs -o size=512m,mode=755 lab "$folder/layer"
mkdir "$folder/layer/upper" "$folder/layer/work" "$folder/layer/proc"
cp -a "$folder/seed/." "$folder/layer/upper/"
mount -t overlay lab -o "lowerdir=/,upperdir=$folder/layer/upper,workdir=$folder/layer/work" "$root"
rm -f "$root/.dockerenv" "$root/run/.containerenv"

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs "$root/sys"
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 "$root/sys/fs/cgroup"

# Knobs of the whole kernel are read-only; each host has a boot id of its own, as after a boot.
for knob in sys sysrq-trigger irq bus; do
    [ -e "$root/proc/$knob" ] || continue
    mount --bind "$root/proc/$knob" "$root/proc/$knob"
    mount -o remount,bind,ro,nosuid,nodev,noexec "$root/proc/$knob"
done
cat /proc/sys/kernel/random/uuid > "$folder/boot_id"
mount --bind "$folder/boot_id" "$root/proc/sys/kernel/random/boot_id"

mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    : > "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
: > "$root/dev/console"
mount --bind /dev/null "$root/dev/console"

mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
for bound in "$@"; do
    if [ -d "$bound" ]; then mkdir -p "$root$bound"; else mkdir -p "$root${bound%/*}"; : >> "$root$bound"; fi
    mount --rbind "$bound" "$root$bound"
done

mkdir -p "$root/mnt"
cd "$root"
pivot_root . mnt
exec chroot . /bin/sh -c '
    umount -l /mnt
    exec setpriv --bounding-set=-sys_time,-sys_module,-mknod,-sys_rawio \
        env -i container=pdctl-lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        /lib/systemd/systemd --system --unit=lab.target --log-target=journal-or-kmsg --show-status=no
' < /dev/null
