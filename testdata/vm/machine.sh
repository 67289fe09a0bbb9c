# Functions for a virtual machine with Debian 12: systemd, kernel 6.1, cgroup v2. It runs in qemu without KVM, so it
# needs only root and apt, and takes half a minute to boot. run.sh and nfs.sh source this file.
#
# The machine has no containerd: the program contains one. $vm is the folder for the machine's files, $arch its
# processor, 127.0.0.1:$api_port the address of its API, and 127.0.0.1:$web_port, if set, that of its port 80. $packages
# are more Debian packages for it, with commas.
case $arch in
amd64) package=qemu-system-x86 emulator='qemu-system-x86_64 -cpu max' console=ttyS0 nic=ens3 ;;
arm64) package=qemu-system-arm emulator='qemu-system-aarch64 -machine virt -cpu cortex-a72' console=ttyAMA0 nic=enp0s1 ;;
*) echo "VM_ARCH is amd64 or arm64, not $arch" >&2; exit 2 ;;
esac

ssh_options=(-q -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=20 -o ServerAliveInterval=10)

# free_port prints a free port of the loopback address.
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# make_disk builds the disk, unless it exists.
make_disk() {
	[ ! -f "$vm/clean.raw" ] || return 0
	local root=$vm/root
	rm -rf "$root"
	[ "$arch" = amd64 ] || testdata/binfmt.sh "$arch" # to run the packages' scripts
	debootstrap --arch="$arch" --variant=minbase --include="systemd-sysv,linux-image-cloud-$arch,openssh-server,iproute2,ca-certificates,curl,procps,dbus,kmod,udev,ifupdown,isc-dhcp-client${packages:+,$packages}" \
		bookworm "$root" >"$vm/debootstrap.log" 2>&1 || { tail "$vm/debootstrap.log" >&2; return 1; }
	[ -f "$vm/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$vm/key"
	install -D -m 600 "$vm/key.pub" "$root/root/.ssh/authorized_keys"
	echo box >"$root/etc/hostname"
	printf "auto lo $nic\niface lo inet loopback\niface $nic inet dhcp\n" >"$root/etc/network/interfaces"
	printf '/dev/vda / ext4 defaults 0 1\n' >"$root/etc/fstab"
	cp "$root"/boot/vmlinuz-* "$vm/vmlinuz"
	cp "$root"/boot/initrd.img-* "$vm/initrd"
	truncate -s 6G "$vm/clean.raw.new"
	mkfs.ext4 -q -d "$root" "$vm/clean.raw.new"
	mv "$vm/clean.raw.new" "$vm/clean.raw"
	rm -rf "$root"
}

# boot MEMORY [QEMU-ARGUMENT...]: starts the machine with the memory in MiB, and waits until it accepts a login.
boot() {
	$emulator -accel tcg,thread=multi -smp 2 -m "$1" -kernel "$vm/vmlinuz" -initrd "$vm/initrd" \
		-append "root=/dev/vda rw console=$console" -drive "file=$vm/disk.raw,format=raw,if=virtio,cache=none" \
		-netdev "user,id=n,hostfwd=tcp:127.0.0.1:$ssh_port-:22,hostfwd=tcp:127.0.0.1:$api_port-:6443${web_port:+,hostfwd=tcp:127.0.0.1:$web_port-:80}" \
		-device virtio-net-pci,netdev=n -display none -serial "file:$vm/serial.log" "${@:2}" >"$vm/qemu.log" 2>&1 &
	qemu=$!
	answers
}

# answers waits until the machine accepts a login.
answers() {
	local n
	for n in $(seq 300); do
		! box true 2>/dev/null || return 0
		kill -0 "$qemu" 2>/dev/null || { cat "$vm/qemu.log" >&2; return 1; }
		sleep 1
	done
	echo "the machine did not boot; the end of its console:" >&2
	tail -n 5 "$vm/serial.log" >&2
	return 1
}

# box runs a command in the machine, in the folder /tmp.
box() { ssh "${ssh_options[@]}" -i "$vm/key" -p "$ssh_port" root@127.0.0.1 "cd /tmp && $*"; }

# put copies files into a folder of the machine.
put() { scp "${ssh_options[@]}" -i "$vm/key" -P "$ssh_port" "${@:1:$#-1}" "root@127.0.0.1:${*: -1}"; }

# cut_power simulates a power cut: unwritten data of the machine's memory is lost.
cut_power() {
	kill -9 "$qemu"
	wait "$qemu" 2>/dev/null || true
}

# ended waits until the machine has powered off.
ended() {
	local n
	for n in $(seq 120); do
		kill -0 "$qemu" 2>/dev/null || { wait "$qemu" 2>/dev/null || true; return 0; }
		sleep 1
	done
	return 1
}

# boot_bare [QEMU-ARGUMENT...]: boots another machine with the first one's kernel. Its root is an initramfs that
# contains only monopod, busybox and kernel modules, and it runs only monopod. Only /data, which is $vm/bare.raw,
# survives a power cut. $api_port and $node_port lead to the machine, which has no default route.
boot_bare() {
	local root=$vm/bare modules
	modules=$(echo "$vm"/modules/*)
	if [ ! -d "$modules" ]; then
		debugfs -R "rdump /lib/modules $vm" "$vm/clean.raw" 2>/dev/null
		modules=$(echo "$vm"/modules/*)
	fi
	rm -rf "$root"
	mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/data" "$root/run" "$root/lib/modules/${modules##*/}"
	cp "$vm/monopod" "$(command -v busybox)" "$root"
	(cd "$modules" && cp --parents -r modules.dep kernel/fs/overlayfs kernel/lib kernel/drivers/virtio \
		kernel/drivers/block/virtio_blk.ko kernel/drivers/net/{veth,ifb,virtio_net,net_failover}.ko \
		kernel/net/{core,802,llc,bridge,ipv4,ipv6,netfilter,sched} "$root/lib/modules/${modules##*/}")
	cat >"$root/init" <<'END'
#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t sysfs sysfs /sys
/busybox mount -t devtmpfs dev /dev
for module in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk failover net_failover virtio_net; do
	/busybox insmod "$(/busybox find /lib/modules -name $module.ko)"
done
/busybox mount -t ext4 /dev/vda /data
/busybox ip address add 10.0.2.15/24 dev eth0
/busybox ip link set eth0 up
/monopod check --data-dir=/data
/monopod serve --data-dir=/data --listen=0.0.0.0:6443
/busybox poweroff -f
END
	chmod +x "$root/init"
	(cd "$root" && find . | busybox cpio -o -H newc) >"$vm/bare.cpio" 2>/dev/null
	qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 512 -kernel "$vm/vmlinuz" -initrd "$vm/bare.cpio" \
		-append console=ttyS0 -drive "file=$vm/bare.raw,format=raw,if=virtio,cache=none" \
		-netdev "user,id=n,hostfwd=tcp:127.0.0.1:$api_port-:6443,hostfwd=tcp:127.0.0.1:$node_port-:30080" \
		-device virtio-net-pci,netdev=n -display none -serial "file:$vm/serial.log" "$@" >"$vm/qemu.log" 2>&1 &
	qemu=$!
}
