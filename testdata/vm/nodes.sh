#!/bin/bash
# Runs the tests of agent/network/nodes on the kernel of the virtual machine of machine.sh, which has WireGuard, for
# machines whose kernel has none. Nodes and pods are network namespaces there. It has the requirements of run.sh, and
# takes half a minute if run.sh has made the disk.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=amd64
vm=${VM_DIR:-/var/tmp/monopod-vm-test}
. testdata/vm/machine.sh
mkdir -p "$vm"
make_disk
[ -d "$vm/modules" ] || debugfs -R "rdump /lib/modules $vm" "$vm/clean.raw" 2>/dev/null
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,lib/modules}
cp "$(command -v busybox)" "$root/bin/busybox"
ln -s busybox "$root/bin/modprobe"
ln -s bin "$root/sbin"
modules=$(echo "$vm"/modules/*)
mkdir "$root/lib/modules/${modules##*/}"
(cd "$modules" && cp --parents -r modules.* kernel/{arch,crypto,lib,net} kernel/drivers/net "$root/lib/modules/${modules##*/}")
CGO_ENABLED=0 go test -c -tags grpcnotrace -vet=off -ldflags='-s -w' -o "$root/nodes.test" ./agent/network/nodes
cat >"$root/init" <<'END'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t tmpfs tmp /tmp
/nodes.test -test.v -test.timeout 10m && echo PASSED
/bin/busybox poweroff -f
END
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$work/initrd"
$emulator -accel tcg,thread=multi -smp 2 -m 1500 -kernel "$vm/vmlinuz" -initrd "$work/initrd" \
	-append "console=$console quiet panic=-1" -no-reboot -display none -serial "file:$work/serial.log" </dev/null
grep -aE -e '--- (PASS|FAIL|SKIP)|_test.go' "$work/serial.log"
! grep -aq -e '--- SKIP' "$work/serial.log" && grep -aq PASSED "$work/serial.log"
