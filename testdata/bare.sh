#!/bin/sh
# Simulates a machine without other programs, in new namespaces. Its root is read-only and contains only monopod, the
# kernel's /proc, /sys and /dev, an empty /run, which is DIR/run, and the folder DIR/data. This folder is mounted at
# /NAME, where NAME is the last part of DIR: the cgroups are in the real machine's tree and are named after the folder.
# The simulated machine ends with this process.
#
#   bare.sh begin DIR PROGRAM
set -eu
step=$1 dir=$2
root=$dir/root
data=$root/$(basename "$dir")

case $step in
begin)
	rm -rf "$dir/run"
	mkdir -p "$dir/run" "$root/proc" "$root/sys" "$root/dev" "$root/run" "$data" "$dir/data"
	cp "$3" "$root/monopod"
	exec unshare --mount --propagation private --pid --fork --mount-proc --uts --ipc --net --kill-child sh "$0" init "$dir"
	;;
init)
	mount --bind "$root" "$root"
	mount -o remount,bind,ro "$root"
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount --bind "$dir/run" "$root/run"
	mount --bind "$dir/data" "$data"
	cd "$root"
	mount --move . / # chroot is not enough: runc replaces the root of the namespace
	touch "$dir/begun"
	while :; do # this process is PID 1: wait also reaps orphans
		sleep 1000 &
		wait $! || true
	done
	;;
esac
