#!/bin/sh
# Installs the named Debian packages whose programs are missing.
# Without root or apt it prints the missing packages and succeeds.
set -eu

missing=
for package in "$@"; do
	program=${package%-server} # the program of etcd-server is etcd
	case $package in
	gcc-*) program=$(echo "${package#gcc-}" | sed s/x86-64/x86_64/)-gcc ;; # for another architecture
	libc6-dev-*) program=/var/lib/dpkg/info/$package.list ;;
	esac
	[ "$package" != nftables ] || program=nft
	[ "$package" != ansible-core ] || program=ansible-playbook
	[ "$package" != musl-tools ] || program=musl-gcc
	[ "$package" != libseccomp-dev ] || program=/usr/include/seccomp.h
	[ "$package" != libc6-dev ] || program=/usr/include/stdio.h
	[ "$package" != qemu-user-static ] || program=qemu-aarch64-static
	[ "$package" != pkgconf ] || program=pkg-config
	[ "$package" != containernetworking-plugins ] || program=/usr/lib/cni/bridge
	command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] || [ -f "$program" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "not installed:$missing (needs root and apt-get); the tests that need them are skipped" >&2
	exit 0
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086 # each package is a separate word
apt-get install -y -qq --no-install-recommends $missing >/dev/null
