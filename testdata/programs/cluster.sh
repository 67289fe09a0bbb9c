# Functions for scripts that run third-party programs against a server in a network namespace; the scripts source this
# file. A script sets $subnet and $space, which is the name of the network namespace. The folder /var/tmp/$space, or
# WORK, contains the compiled programs and the logs.
#
# The functions need root, containerd and runc, kubectl, curl, ip, and bin/monopod and bin/web.tar (make build web).
work=${WORK:-/var/tmp/$space}
monopod=${MONOPOD:-bin/monopod}
address=$subnet.2
net=/run/netns/$space
passed=0
failed=0
pids=
server=

[ "$(id -u)" = 0 ] || { echo "network namespaces need root" >&2; exit 1; }
# need PROGRAM...: ends the script if a program is missing.
need() {
	for program in "$@"; do
		command -v "$program" >/dev/null || { echo "$program is missing" >&2; exit 1; }
	done
}
need containerd runc kubectl curl ip

# folder MODULE GO.MOD-FOLDER: prints the folder of a module in the module cache.
folder() { go list -C "$2" -m -f '{{.Dir}}' "$1"; }
# compile GO.MOD-FOLDER ARGUMENT...: builds programs into $work/bin.
compile() {
	from=$1
	shift
	mkdir -p "$work/bin"
	go build -C "$from" -trimpath -tags grpcnotrace -ldflags='-s -w' -o "$work/bin/" "$@"
}
inside() { nsenter --net="$net" "$@"; }
k() { inside kubectl "$@"; }

# prepare creates a folder $top with the data folder, and a network namespace with an address and a default route.
prepare() {
	top=$(mktemp -d)
	data=$top/data
	export KUBECONFIG="$data/admin.kubeconfig"
	mkdir -p "$data/images"
	: >"$work/monopod.log"
	cp "${WEB:-bin/web.tar}" "$data/images/"
	ip netns add "$space"
	trap stop EXIT
	trap 'exit 1' INT TERM
	ip link add name "${space#monopod-}0" type veth peer name eth0 netns "$space"
	ip address add "$subnet.1/24" dev "${space#monopod-}0"
	ip link set "${space#monopod-}0" up
	ip -n "$space" link set lo up
	ip -n "$space" address add "$address/24" dev eth0
	ip -n "$space" link set eth0 up
	ip -n "$space" route add default via "$subnet.1"
}
# serve [FLAG...]: starts the server and waits until it is ready.
serve() {
	nsenter --net="$net" "$monopod" serve --data-dir "$data" --listen "$address:6443" --node-name node1 --kubelet-listen "$address:10250" --pod-cidr 10.90.0.0/16 \
		--eviction-hard='nodefs.available<1%,imagefs.available<1%' --service-cluster-ip-range 10.97.0.0/16 "$@" >>"$work/monopod.log" 2>&1 &
	server=$!
	until curl -sf -o /dev/null --unix-socket "$data/monopod.sock" http://x/readyz; do
		kill -0 "$server" || { tail -n 20 "$work/monopod.log" >&2; exit 1; }
		sleep 0.2
	done
}
stop() {
	trap - EXIT INT TERM
	for pid in $pids $server; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" || true
	done
	inside "$monopod" reset --data-dir "$data" || true
	ip link delete "${space#monopod-}0" || true
	ip netns delete "$space" || true
	if grep " $top/" /proc/self/mountinfo >&2; then
		echo "FAIL  still mounted; $top is kept" >&2
		exit 1
	fi
	rm -rf "$top"
}

# expect PATTERN COMMAND...: repeats the command for up to a minute and a half, until it succeeds and its output matches
# the extended regular expression.
expect() {
	pattern=$1
	shift
	for _ in $(seq 90); do
		if output=$("$@" 2>&1) && printf '%s\n' "$output" | grep -qE -- "$pattern"; then
			echo "ok    $* ($pattern)"
			passed=$((passed + 1))
			return
		fi
		sleep 1
	done
	echo "FAIL  $*: no $pattern in"
	printf '%s\n' "$output" | head -n 20
	failed=1
}
# same WHAT BEFORE AFTER: fails unless the two values are equal.
same() {
	if [ "$2" = "$3" ]; then
		echo "ok    $1"
		passed=$((passed + 1))
		return
	fi
	printf 'FAIL  %s: before\n%s\nafter\n%s\n' "$1" "$2" "$3"
	failed=1
}
# pod NAME VOLUME [MOUNT]: creates a pod with the volume and waits until it is ready. MOUNT is a field of the container,
# by default a mount at /data.
pod() {
	mount='volumeMounts: [{name: v, mountPath: /data}]'
	k apply -f - <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $1}
		spec:
		  terminationGracePeriodSeconds: 1
		  containers: [{name: main, image: monopod.local/web:1, command: [/web, serve], ${3:-$mount}}]
		  volumes: [{name: v, $2}]
	END
	k wait --for=condition=Ready --timeout=90s "pod/$1" || { k describe "pod/$1"; failed=1; }
}
used() { echo "persistentVolumeClaim: {claimName: $1}"; }
# start NAME COMMAND...: starts the command in the background, with its output in $work/NAME.log.
start() {
	log=$work/$1.log
	shift
	nsenter --net="$net" "$@" >"$log" 2>&1 &
	started=$!
	pids="$started $pids"
}
# parts NAME...: runs the functions and ends the script.
parts() {
	for part in "$@"; do
		echo "== $part"
		"$part"
	done
	echo "$passed checks passed"
	[ "$failed" = 0 ] && echo "all good"
	exit "$failed"
}
