#!/bin/sh
# Starts a systemd that is PID 1 of new namespaces, on a copy-on-write view of this machine's root, in new cgroups, and
# without the capability to reboot. The folder, a tmpfs, contains its changes: up (changed files of the root), units
# (/etc/systemd/system), data (/var/lib/monopod), monopod (the program), state, and booted, a file that the script
# creates immediately before systemd starts. systemd ends with this process.
set -eu
step=$1 dir=$2

# hierarchies prints, for each cgroup hierarchy, the mount options, the path below /sys/fs/cgroup, and the cgroup of
# this process.
hierarchies() {
	while IFS=: read -r _ controllers path; do
		case $controllers in
		"") [ -d /sys/fs/cgroup/unified ] && echo v2 /unified "$path" || echo v2 "" / ;;
		name=*) echo "none,$controllers,xattr" "/${controllers#name=}" "$path" ;;
		*) echo "$controllers" "/$controllers" "$path" ;;
		esac
	done <"$dir/state/cgroups"
}

case $step in
begin)
	mkdir -p "$dir/state" "$dir/up" "$dir/work" "$dir/root" "$dir/units" "$dir/data"
	cp /proc/self/cgroup "$dir/state/cgroups"
	exec unshare --mount --propagation private --pid --fork --uts --ipc --net --kill-child sh "$0" cgroups "$dir"
	;;
cgroups) # only this process moves: its parent stays in its cgroup, because it must not be in the new tree
	hierarchies | while read -r _ place path; do
		[ -n "$path" ] || path=$place place=
		group=/sys/fs/cgroup$place${path%/}/monopod-test-$(basename "$dir")
		mkdir -p "$group"
		echo "$group" >>"$dir/state/made"
		if [ "$place" = /cpuset ]; then
			cat "/sys/fs/cgroup$place${path%/}/cpuset.cpus" >"$group/cpuset.cpus"
			cat "/sys/fs/cgroup$place${path%/}/cpuset.mems" >"$group/cpuset.mems"
			echo 1 >"$group/cgroup.clone_children"
		fi
	done
	while read -r group; do echo 0 >"$group/cgroup.procs"; done <"$dir/state/made"
	exec unshare --cgroup sh "$0" root "$dir"
	;;
esac

root=$dir/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$dir/up,workdir=$dir/work" "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
mount -o remount,bind,rw "$root/proc/sys/net"
mount -t sysfs -o ro sysfs "$root/sys"
if [ -d /sys/fs/cgroup/systemd ]; then
	mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
	hierarchies | while read -r options place _; do
		mkdir "$root/sys/fs/cgroup$place"
		case $options in
		v2) mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup$place" ;;
		*) mount -t cgroup -o "$options" cgroup "$root/sys/fs/cgroup$place" ;;
		esac
	done
	mount -o remount,ro "$root/sys/fs/cgroup"
else
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null zero full random urandom tty; do
	: >"$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mkdir -p "$root/var/lib/monopod" "$root/usr/local/bin" "$root/etc/systemd/logind.conf.d"
mount --bind "$dir/data" "$root/var/lib/monopod"
mount --bind "$dir/units" "$root/etc/systemd/system" # hides the machine's units
rm -f "$root"/etc/systemd/logind.conf.d/*
[ ! -e "$dir/logind.conf" ] || cp "$dir/logind.conf" "$root/etc/systemd/logind.conf.d/99-monopod.conf"
: >"$root/usr/local/bin/monopod"
mount --bind "$dir/monopod" "$root/usr/local/bin/monopod"
echo node1 >"$root/etc/hostname"
ip link set lo up
cd "$root"
mkdir -p .old
pivot_root . .old
: >".old$dir/booted"
# shellcheck disable=SC2016 # the inner shell expands $PATH
exec chroot . /bin/sh -c 'umount -l /.old && exec env -i container=monopod-test PATH="$PATH" \
	setpriv --bounding-set=-sys_boot,-sys_module,-sys_time --inh-caps=-sys_boot /lib/systemd/systemd --system --unit=multi-user.target --show-status=0'
