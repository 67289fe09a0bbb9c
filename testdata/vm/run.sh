#!/bin/bash
# Tests installation, pods, upgrades, reboots and power cuts in a virtual machine: make vm-test. It needs root and apt,
# about 3 GB in $VM_DIR, and takes half an hour to an hour on two cores. With VM_ARCH=arm64 the machine has that
# processor, and the default cases are those of make arm64-test: preloaded pods and their memory.
#
#   run.sh [CASE...]    runs the cases, by default all in the order of the variable all
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=${VM_ARCH:-amd64}
vm=${VM_DIR:-/var/tmp/monopod-vm-test$([ "$arch" = amd64 ] || echo "-$arch")}
cuts=${VM_CUTS:-20}
mkdir -p "$vm"
. testdata/vm/machine.sh

export DEBIAN_FRONTEND=noninteractive
command -v "${emulator%% *}" debootstrap mkfs.ext4 ssh busybox curl >/dev/null ||
	apt-get install -y -qq --no-install-recommends $package debootstrap e2fsprogs openssh-client busybox-static curl >/dev/null
ssh_port=$(free_port)
api_port=$(free_port)
node_port=$(free_port)
qemu=
trap '[ -z "$qemu" ] || kill -9 "$qemu" 2>/dev/null || true' EXIT

fail() {
	echo "FAIL $case: $*" >&2
	box 'journalctl -u monopod -n 15 --no-pager -o cat; monopod status' >&2 2>/dev/null || true
	exit 1
}

# until_true TIMEOUT COMMAND…: runs a command in the machine until it succeeds.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until box "$*" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "in vain: $*"
		sleep 1
	done
}

api() { box "curl -sS --fail --unix-socket /var/lib/monopod/monopod.sock $*"; }

# apply creates an object from the YAML at the standard input, at a path.
apply() { api "-o /dev/null -H 'Content-Type: application/yaml' --data-binary @- http://x$1"; }

# pod NAME RESOURCES COMMAND…: creates a pod of the sample image that is not restarted.
pod() {
	apply /api/v1/namespaces/default/pods <<END
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 5
  containers: [{name: main, image: monopod.local/web:1, command: [$(printf '/web, '; printf '"%s", ' "${@:3}")], resources: $2}]
END
}

# phase NAME: prints the pod's phase and the reasons in its status.
phase() { api "http://x/api/v1/namespaces/default/pods/$1" | grep -oE '"(phase|reason)": ?"[^"]*"' | tr -d ' ' | tr '\n' ' '; }

# pod_phase TIMEOUT NAME REGEXP: waits until phase prints something that matches.
pod_phase() {
	local end=$((SECONDS + $1))
	until phase "$2" 2>/dev/null | grep -qE "$3"; do
		[ $SECONDS -lt $end ] || fail "pod $2 is not $3: $(phase "$2")"
		sleep 1
	done
}

# ready is a command that succeeds when the API and the node are ready.
ready='monopod status'

# deployed is a command that succeeds when all three web servers are ready.
deployed='curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/apis/apps/v1/namespaces/default/deployments/web | grep -qE "\"readyReplicas\": ?3"'

install_() { # in the folder /tmp, with the commands that a user types
	box /root/monopod install | tee "$vm/install.out" | grep -q 'starts with the machine (systemd)' || fail "$(cat "$vm/install.out")"
	box monopod install | grep -q 'nothing to do' || fail "a second install changed something"
	until_true 60 "$ready"
	box 'monopod images import /root/web.tar'
	! box 'journalctl -u monopod -o cat' | grep -E '"level":"error"|mode 0' || fail "a new installation logs errors"
}

pods() {
	apply /apis/apps/v1/namespaces/default/deployments <testdata/web.yaml
	until_true 120 "$deployed"
}

limits() { # the container reads its limits of cgroup v2
	pod limited '{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 250m, memory: 64Mi}}' \
		do cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory.swap.max then sleep 3600
	pod_phase 60 limited Running
	local found
	found=$(api http://x/api/v1/namespaces/default/pods/limited/log | tr '\n' ' ')
	[ "$found" = '25000 100000 67108864 0 ' ] || fail "cpu.max, memory.max, memory.swap.max: $found"
	api http://x/api/v1/nodes/box/proxy/metrics/cadvisor |
		grep '^container_pressure_memory_waiting_seconds_total{container="main"' >/dev/null || fail "the container has no PSI metrics"
}

oom() {
	pod greedy '{limits: {memory: 32Mi}}' alloc 200
	pod_phase 120 greedy 'OOMKilled'
}

eviction() { # memory pressure: the machine has 768 MiB
	pod huge '{}' alloc 450
	pod_phase 180 huge 'Evicted'
	until_true 400 "$ready"
}

reboot() {
	box 'systemctl reboot' || true
	sleep 5
	answers
	until_true 120 "$ready"
	until_true 120 "$deployed"
}

upgrade() {
	box 'printf "#!/bin/sh\n[ \"\$1\" != serve ] || exit 1\nexec /usr/local/bin/monopod \"\$@\"\n" >broken && chmod +x broken'
	! box monopod upgrade ./broken >"$vm/upgrade.out" 2>&1 || fail "upgrade installed a broken program"
	grep -q 'runs again' "$vm/upgrade.out" || fail "$(cat "$vm/upgrade.out")"
	until_true 60 "$ready"
	box 'cp /usr/local/bin/monopod newer && echo >>newer && monopod upgrade ./newer' | grep -q 'to go back' || fail "upgrade"
	box monopod rollback >/dev/null
}

shutdown() { # logind waits for the pods
	box 'monopod install -- --shutdown-grace-period=4s --shutdown-grace-period-critical-pods=1s' >/dev/null
	until_true 60 'systemd-inhibit --list --no-legend | grep -q monopod'
	pod last '{}' sleep 3600
	pod_phase 60 last Running
	box 'systemctl poweroff' || true
	ended || fail "the machine did not power off"
	boot 768
	until_true 120 "$ready"
	pod_phase 30 last Terminated
	box 'monopod install' >/dev/null
}

power() { # power cuts during writes: no acknowledged object is lost, and all pods run again
	local cut acked=0 writer kubeconfig=$vm/kubeconfig
	for cut in $(seq "$cuts"); do
		: >"$vm/acked"
		box "for i in \$(seq 100000); do curl -sS --fail -o /dev/null --unix-socket /var/lib/monopod/monopod.sock -H 'Content-Type: application/json' -d '{\"metadata\":{\"name\":\"cut-$cut-'\$i'\"}}' http://x/api/v1/namespaces/default/configmaps && echo cut-$cut-\$i; done" >>"$vm/acked" 2>/dev/null &
		writer=$!
		for _ in $(seq 60); do
			[ ! -s "$vm/acked" ] || break
			sleep 1
		done
		sleep $((1 + RANDOM % 5))
		cut_power
		wait $writer || true
		boot 768
		until_true 120 "$ready"
		api http://x/api/v1/namespaces/default/configmaps | { grep -oE "\"cut-$cut-[0-9]+\"" || true; } | tr -d '"' | sort -u >"$vm/stored"
		sort "$vm/acked" | comm -23 - "$vm/stored" >"$vm/lost"
		[ ! -s "$vm/lost" ] || fail "cut $cut: $(wc -l <"$vm/lost") acknowledged objects are lost: $(head -n 3 "$vm/lost")"
		[ -s "$vm/acked" ] || fail "cut $cut: nothing was written"
		acked=$((acked + $(wc -l <"$vm/acked")))
		until_true 120 "$deployed"
	done
	echo "$cuts power cuts, $acked acknowledged objects, 0 lost"
}

package() { # the Debian package
	box 'monopod uninstall --purge' >/dev/null
	box 'apt-get install -y -qq /root/monopod.deb' >/dev/null 2>&1 || box 'dpkg -i /root/monopod.deb' >/dev/null
	until_true 120 "$ready"
	[ "$(box 'command -v monopod')" = /usr/bin/monopod ] || fail "monopod is at $(box 'command -v monopod')"
}

preloaded() { # the first start runs the pods of a prepared data folder
	box 'mkdir -p /var/lib/monopod/images /var/lib/monopod/manifests && cp /root/web.tar /var/lib/monopod/images/'
	local n
	for n in 1 2 3; do
		box "cat >/var/lib/monopod/manifests/web$n.yaml" <<END
apiVersion: v1
kind: Pod
metadata: {name: web$n}
spec:
  containers: [{name: web, image: monopod.local/web:1, readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2}}]
END
	done
	box /root/monopod install >/dev/null
	until_true 300 "$ready"
	until_true 300 '[ "$(curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/api/v1/namespaces/default/pods | grep -oE "\"ready\": ?true" | wc -l)" = 3 ]'
	box 'uname -mr && monopod version && ! command -v containerd runc'
	! box 'monopod status' | grep -A 9 'needs attention' || fail "something needs attention"
}

memory() { # RSS counts shared pages and those of program files fully; PSS divides them by the number of processes
	sleep 30
	box sh <<'END'
for name in monopod containerd containerd-shim pause web; do
	for p in $(pgrep -x "$name"); do cat "/proc/$p/smaps_rollup"; done |
		awk -v name=$name '/^Rss:/ {n++; rss += $2} /^Pss:/ {pss += $2} /^Pss_Anon:/ {anon += $2}
			END {printf "%d %-15s RSS %5.1f  PSS %5.1f  anonymous %5.1f MiB\n", n, name, rss/1024, pss/1024, anon/1024}'
done
free -m
END
}

# bare_kubectl calls kubectl for the bare machine. It does not verify the certificate, because the machine's first clock
# is in 1970.
bare_kubectl() { bin/kubectl --server "https://127.0.0.1:$api_port" --insecure-skip-tls-verify --token "$bare_token" "$@"; }

# bare_works waits until everything of testdata/bare.yaml works on the bare machine.
bare_works() {
	local end=$((SECONDS + 180))
	until bare_kubectl get --raw /readyz >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "not ready: $(tail -n 5 "$vm/serial.log")"
		kill -0 "$qemu" || fail "$(cat "$vm/qemu.log")"
		sleep 1
	done
	[ -z "${1:-}" ] || bare_kubectl apply -f "$1"
	bare_kubectl rollout status deployment/web --timeout=3m
	bare_kubectl wait pod/client --for=condition=Ready --timeout=3m
	until bare_kubectl exec client -- /web get http://web.default.svc.cluster.local 20s && # fails during a restart
		curl -sS --fail -m 20 "http://127.0.0.1:$node_port"; do
		[ $SECONDS -lt $end ] || fail "the Service does not answer"
		sleep 1
	done >"$vm/answers.out" 2>&1
	bare_kubectl logs client | grep '^begins$' >/dev/null || fail "the log: $(bare_kubectl logs client)"
}

bare() { # a machine that runs only monopod: the root is an initramfs, the clock starts in 1970; then a power cut
	[ -z "$qemu" ] || cut_power
	rm -rf "$vm/data"
	mkdir -p "$vm/data/images" "$vm/data/pki"
	cp bin/web.tar "$vm/data/images"
	bare_token=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
	(umask 077 && printf %s "$bare_token" >"$vm/data/pki/admin.token")
	rm -f "$vm/bare.raw"
	truncate -s 1G "$vm/bare.raw"
	mkfs.ext4 -q -d "$vm/data" "$vm/bare.raw"
	boot_bare -rtc base=1970-01-02
	bare_works testdata/bare.yaml
	bare_kubectl exec client -- /web write /kept/file kept
	sleep 40 # the kernel writes unsynced data after 30 s
	bare_kubectl create configmap acknowledged
	cut_power
	boot_bare
	bare_works
	[ "$(bare_kubectl exec client -- /web cat /kept/file)" = kept ] || fail "the volume is lost"
	bare_kubectl get configmap acknowledged >/dev/null || fail "an acknowledged object is lost"
	! grep -aE "missing|ERROR" "$vm/serial.log" || fail "the console shows errors"
	cut_power
	qemu=
}

all=(install_ pods limits oom eviction reboot upgrade shutdown power package bare)
[ "$arch" = amd64 ] || all=(preloaded memory)
case=machine
GOARCH=$arch make build web PROGRAM="$vm/monopod"
GOARCH='' make kubectl
make_disk
if [ "$*" != bare ]; then # the case bare boots another machine
	cp --sparse=always "$vm/clean.raw" "$vm/disk.raw"
	testdata/deb.sh "$vm/monopod" 0.0.1 "$arch" "$vm/monopod.deb" >/dev/null
	boot 768
	put "$vm/monopod" bin/web.tar "$vm/monopod.deb" /root/
fi
for case in "${@:-${all[@]}}"; do
	began=$SECONDS
	"$case"
	echo "ok ${case%_} ($((SECONDS - began)) s)"
done
