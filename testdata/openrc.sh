#!/bin/sh
# Tests monopod install, upgrade, rollback and uninstall with a real OpenRC, in new namespaces, on a copy-on-write view
# of this machine's root. To this view it adds the files of Debian's packages, without installing them.
#
#   openrc.sh run FOLDER PROGRAM NEWER BROKEN
#
# NEWER is another program with the same behavior, BROKEN is a program that cannot serve. The script prints each command
# and ends at the first failure. Exit code 77 means that OpenRC cannot run on this machine.
set -eu
step=$1 dir=$2

case $step in
run)
	mkdir -p "$dir/packages" "$dir/files" "$dir/up" "$dir/work" "$dir/root"
	cp "$3" "$dir/program"
	cp "$4" "$dir/newer"
	cp "$5" "$dir/broken"
	chmod 755 "$dir/program" "$dir/newer" "$dir/broken"
	(cd "$dir/packages" && apt-get -qq download openrc libeinfo1 librc1) || exit 77
	for package in "$dir"/packages/*.deb; do dpkg-deb -x "$package" "$dir/files"; done
	# On a machine whose /sbin, /bin or /lib is a link into /usr, the files belong into /usr.
	for folder in sbin bin lib; do
		if [ -L "/$folder" ]; then
			mkdir -p "$dir/files/usr/$folder"
			cp -a "$dir/files/$folder/." "$dir/files/usr/$folder/"
			rm -r "${dir:?}/files/$folder"
		fi
	done
	exec unshare --mount --propagation private --pid --fork --uts --ipc --net --kill-child sh "$0" root "$dir"
	;;
root)
	root=$dir/root
	mount -t overlay overlay -o "lowerdir=$dir/files:/,upperdir=$dir/up,workdir=$dir/work" "$root" || exit 77
	mount -t proc proc "$root/proc"
	mount --rbind /sys "$root/sys"
	mount --rbind /dev "$root/dev"
	mount -t tmpfs -o mode=755 tmpfs "$root/run" # without the files of this machine's systemd
	mkdir -p "$root/var/lib/monopod" "$root/opt/test" "$root/var/log"
	mount -t tmpfs tmpfs "$root/var/lib/monopod"
	cp "$dir/program" "$dir/newer" "$dir/broken" "$0" "$root/opt/test/"
	rm -f "$root/etc/init.d/monopod" "$root/usr/local/bin/monopod"
	ip link set lo up
	hostname node1
	# This process is PID 1 and reaps all orphans: OpenRC waits until the stopped process no longer exists.
	chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root sh "/opt/test/$(basename "$0")" inside /opt/test &
	wait $!
	exit
	;;
esac

# is_so runs a command, which must succeed and print what matches a pattern.
is_so() {
	pattern=$1
	shift
	echo "+ $*"
	out=$("$@" 2>&1) || { echo "$out"; echo "failed: $*"; cat /var/log/monopod.log || true; exit 1; }
	echo "$out"
	echo "$out" | grep -Eq "$pattern" || { echo "failed: $* does not print $pattern"; exit 1; }
}

# fails_so runs a command, which must fail and print what matches a pattern.
fails_so() {
	pattern=$1
	shift
	echo "+ $*"
	if out=$("$@" 2>&1); then echo "$out"; echo "failed: $* succeeds"; exit 1; fi
	echo "$out"
	echo "$out" | grep -Eq "$pattern" || { echo "failed: $* does not print $pattern"; exit 1; }
}

ready() { curl -sf --unix-socket /var/lib/monopod/monopod.sock http://x/readyz; }
pid() { monopod status -o json | grep -Eo '"pid": *[0-9]+' | grep -Eo '[0-9]+'; }

for state in daemons exclusive failed hotplugged inactive options scheduled started starting stopping wasinactive; do
	mkdir -p "/run/openrc/$state" # as after the boot of a machine
done
echo default >/run/openrc/softlevel
is_so 'starts with the machine \(OpenRC\)' "$dir/program" install -- --runtime=fake --node-name=node1 --listen=127.0.0.1:0
is_so ok ready
is_so 'monopod \| +default' rc-update show default
is_so started rc-service monopod status
is_so 'nothing to do' monopod install -- --runtime=fake --node-name=node1 --listen=127.0.0.1:0

first=$(pid)
is_so . rc-service monopod restart
until ready >/dev/null; do sleep 0.1; done
second=$(pid)
[ "$first" != "$second" ] || { echo "failed: process $first still runs after a restart"; exit 1; }
kill -KILL "$second" # the supervisor starts a new process
until ready >/dev/null && [ "$(pid)" != "$second" ]; do sleep 0.1; done
is_so started rc-service monopod status

is_so . rc-service monopod stop
fails_so stopped rc-service monopod status
if ready; then echo "failed: monopod runs after stop"; exit 1; fi
is_so . rc-service monopod start
until ready >/dev/null; do sleep 0.1; done

is_so 'wrote /etc/init.d/monopod' monopod install -- --runtime=fake --node-name=node1 --listen=127.0.0.1:0 --max-pods=20
is_so 'to go back: monopod rollback' monopod upgrade "$dir/newer"
cmp /usr/local/bin/monopod "$dir/newer"
is_so ok ready
fails_so 'runs again' monopod upgrade --timeout=10s "$dir/broken"
cmp /usr/local/bin/monopod "$dir/newer"
is_so ok ready
is_so 'to go back: monopod rollback' monopod rollback
cmp /usr/local/bin/monopod "$dir/program"
is_so started rc-service monopod status

is_so 'its data stay in /var/lib/monopod' monopod uninstall
for gone in /etc/init.d/monopod /usr/local/bin/monopod /usr/local/bin/monopod.previous /etc/runlevels/default/monopod; do
	if [ -e "$gone" ] || [ -L "$gone" ]; then echo "failed: $gone still exists"; exit 1; fi
done
if ready; then echo "failed: monopod runs after uninstall"; exit 1; fi
test -e /var/lib/monopod/state.db
fails_so 'run monopod install' "$dir/program" uninstall
echo done
