#!/bin/sh
# A machine that has nothing but the program: in namespaces of its own, its root is read-only and holds only monopod, the
# kernel's /proc, /sys and /dev, an empty /run, which is DIR/run, and the folder DIR/data. That one is at /NAME, the last
# part of DIR: cgroups, which are those of the real machine, are named after it. It ends with this process.
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
	while :; do # it is init: wait also reaps what is orphaned
		sleep 1000 &
		wait $! || true
	done
	;;
esac
