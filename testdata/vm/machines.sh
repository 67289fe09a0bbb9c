#!/bin/bash
# Follows docs/several-machines.md on three virtual machines: they join, lose power, lose their server, use WireGuard,
# and leave. It has the requirements of run.sh, takes ten minutes, and needs 3 GB of memory.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=amd64
vm=${VM_DIR:-/var/tmp/monopod-vm-test}
mkdir -p "$vm"
. testdata/vm/machine.sh

declare -a pids ports
trap 'kill -9 "${pids[@]}" 2>/dev/null || true' EXIT
switch=$(free_port) # the machines' network is this multicast port on loopback

fail() {
	echo "FAIL: $*" >&2
	for n in 1 2 3; do
		echo "--- machine $n" >&2
		on "$n" 'journalctl -u monopod -n 10 --no-pager -o cat; monopod status; ip route' >&2 2>/dev/null || true
	done
	exit 1
}

# on N COMMAND…: runs a command on machine N.
on() {
	local ssh_port=${ports[$1]}
	box "${@:2}"
}

# start N: boots machine N, whose address is 192.0.2.1N.
start() {
	ports[$1]=${ports[$1]:-$(free_port)}
	$emulator -accel tcg -smp 1 -m 768 -kernel "$vm/vmlinuz" -initrd "$vm/initrd" \
		-append "root=/dev/vda rw console=$console" -drive "file=$vm/disk$1.raw,format=raw,if=virtio,cache=none" \
		-netdev "user,id=n,hostfwd=tcp:127.0.0.1:${ports[$1]}-:22" -device virtio-net-pci,netdev=n \
		-netdev "socket,id=m,mcast=230.0.0.1:$switch,localaddr=127.0.0.1" -device "virtio-net-pci,netdev=m,mac=52:54:00:00:00:0$1" \
		-display none -serial "file:$vm/serial$1.log" >"$vm/qemu.log" 2>&1 &
	pids[$1]=$!
}

# up N: waits until machine N accepts a login.
up() {
	local qemu=${pids[$1]} ssh_port=${ports[$1]}
	answers
}

cut() {
	kill -9 "${pids[$1]}"
	wait "${pids[$1]}" 2>/dev/null || true
}

# until_on N SECONDS COMMAND…: runs a command on machine N until it succeeds.
until_on() {
	local n=$1 end=$((SECONDS + $2))
	shift 2
	until on "$n" "$*" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "on machine $n in vain: $*"
		sleep 1
	done
}

# step NAME: begins a step, after the one before has succeeded.
step() {
	echo "ok $step ($((SECONDS - began)) s)"
	step=$1 began=$SECONDS
}

# ready N: waits until the server says that the node of machine N is ready.
ready() { until_on 1 200 "curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/api/v1/nodes/box$1 | tr -d ' \n' | grep -qE '\"(type\":\"Ready\"[^}]*\"status\":\"True|status\":\"True\"[^}]*\"type\":\"Ready)\"'"; }

# pods: waits until a pod of the DaemonSet is ready on every node, and sets pod[N] to the address of that of machine N.
declare -A pod
pods() {
	until_on 1 300 "[ \$(curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/apis/apps/v1/namespaces/default/daemonsets/web | tr -d ' \n' | grep -oE '\"numberReady\":[0-9]+' | cut -d: -f2) = $1 ]"
	local line
	while read -r line; do pod[${line%% *}]=${line#* }; done < <(on 1 "curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/api/v1/namespaces/default/pods" |
		python3 -c 'import json, sys
for p in json.load(sys.stdin)["items"]: print(p["spec"]["nodeName"][3:], p["status"].get("podIP", ""))')
}

# reach A B: machine A reaches the pod of machine B, its NodePort, and the Service by name from its own pod.
reach() {
	until_on "$1" 60 "curl -sS -m 3 http://${pod[$2]}:8080/ | grep Hello && curl -sS -m 3 http://192.0.2.1$2:30080/ | grep Hello"
}

step=begin began=$SECONDS
make build web PROGRAM="$vm/monopod"
make_disk
for n in 1 2 3; do
	cp --sparse=always "$vm/clean.raw" "$vm/disk$n.raw"
	# ens3 leads only to this script, as a cable of an administrator; the network of the machines is ens4.
	printf 'box%s\n' "$n" >"$vm/hostname"
	cat >"$vm/interfaces" <<END
auto lo ens3 ens4
iface lo inet loopback
iface ens3 inet static
	address 10.0.2.15/24
iface ens4 inet static
	address 192.0.2.1$n/24
	gateway 192.0.2.1
END
	for file in hostname network/interfaces; do
		debugfs -w -R "rm /etc/$file" "$vm/disk$n.raw" >/dev/null 2>&1
		debugfs -w -R "write $vm/${file##*/} /etc/$file" "$vm/disk$n.raw" >/dev/null 2>&1
	done
	start "$n"
done
for n in 1 2 3; do
	up "$n"
	ssh_port=${ports[$n]} put "$vm/monopod" bin/web.tar /root/
	on "$n" 'mkdir -p /var/lib/monopod/images && cp /root/web.tar /var/lib/monopod/images/'
done

step 'join'
on 1 '/root/monopod install -- --listen=0.0.0.0:6443' >/dev/null
line=$(on 1 'monopod token create')
[[ $line == "monopod join https://192.0.2.11:6443 --token "* ]] || fail "$line"
for n in 2 3; do on "$n" "/root/monopod install -- ${line#monopod }" >/dev/null; done
for n in 1 2 3; do ready "$n"; done
on 2 'monopod status' | grep -q 'a server answers' || fail "$(on 2 'monopod status')"
! on 2 'grep -r token /etc/systemd/system/monopod.service' || fail 'the unit contains the token'

step 'pods, NodePorts and names of all machines'
on 1 'curl -sS --fail -o /dev/null --unix-socket /var/lib/monopod/monopod.sock -H "Content-Type: application/yaml" --data-binary @- http://x/apis/apps/v1/namespaces/default/daemonsets' <<'END'
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: monopod.local/web:1, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2}}]}
END
on 1 'curl -sS --fail -o /dev/null --unix-socket /var/lib/monopod/monopod.sock -H "Content-Type: application/yaml" --data-binary @- http://x/api/v1/namespaces/default/services' <<'END'
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
END
pods 3
for a in 1 2 3; do for b in 1 2 3; do reach $a $b; done; done
first=${pod[2]}

step 'a power cut of a node'
cut 2
start 2
up 2
ready 2
pods 3
[ "${pod[2]}" = "$first" ] || fail "the pod of machine 2 had the address $first, now ${pod[2]}"
reach 1 2
reach 2 3

step 'a power cut of a node while the server is off'
cut 1
cut 2
start 2
up 2
until_on 2 120 "curl -sS -m 3 http://$first:8080/ | grep Hello"
until_on 2 60 'curl -sS -m 3 http://192.0.2.12:30080/ | grep Hello'
! on 2 'monopod status' >"$vm/status.out" || fail 'status succeeds without a server'
grep -q 'no server has answered for' "$vm/status.out" || fail "$(cat "$vm/status.out")"
start 1
up 1
for n in 1 2 3; do ready "$n"; done
pods 3
for a in 1 2 3; do for b in 1 2 3; do reach $a $b; done; done

step 'WireGuard'
on 1 'monopod install -- --listen=0.0.0.0:6443 --node-network=wireguard' >/dev/null
for n in 2 3; do on "$n" 'monopod install -- join --node-network=wireguard' >/dev/null; done
for n in 1 2 3; do
	ready "$n"
	until_on "$n" 60 'ip -d link show type wireguard | grep wireguard'
done
pods 3
for a in 1 2 3; do for b in 1 2 3; do reach $a $b; done; done

step 'leave'
on 3 'monopod uninstall --purge' >/dev/null
on 1 'curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/api/v1/nodes/box3' | grep -q NotFound || fail 'the Node of machine 3 is still there'
! on 3 'pgrep containerd || ls /var/lib/monopod' || fail 'something is left on machine 3'
step end
