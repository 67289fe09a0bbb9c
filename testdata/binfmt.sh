#!/bin/sh
# Makes this machine run programs for other processors (arm64, arm) under qemu, until its next boot. It needs root.
#
#   binfmt.sh GOARCH...
set -eu
"$(dirname "$0")/install.sh" qemu-user-static
formats=/proc/sys/fs/binfmt_misc
[ -f $formats/register ] || mount -t binfmt_misc binfmt_misc $formats
for arch; do
	[ "$arch" != arm64 ] || arch=aarch64
	[ -f "$formats/qemu-$arch" ] || cat "/usr/lib/binfmt.d/qemu-$arch.conf" >$formats/register
done
