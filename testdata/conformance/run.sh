#!/bin/sh
# Runs Kubernetes' conformance tests against bin/monopod, which starts its own containerd, in a network namespace. The
# script builds the tests and their images from the module k8s.io/kubernetes, so it needs no registry. The first build
# takes half an hour.
#
#   testdata/conformance/run.sh [FOCUS [SKIP]]
#
# NODES is the number of machines, by default 2: the second one joins. Some tests need two.
#
# FOCUS and SKIP are regular expressions for the names of tests, by default all conformance tests. WORK is the folder
# for the programs, the images and the results. PROCS is the number of parallel tests, by default 4. IMAGES is a folder
# with archives of more images, for instance those of CSI drivers (testdata/programs/csi.sh), whose tests need the
# snapshot controller.
set -eu
cd "$(dirname "$0")/../.."
repo=$PWD
focus=${1:-'\[Conformance\]'}
skip=${2:-NOTHING}
version=v1.37.2
staging=v0.37.2
work=${WORK:-/var/tmp/monopod-conformance}
arch=$(go env GOARCH)

[ "$(id -u)" = 0 ] || { echo "containers and network namespaces need root" >&2; exit 1; }
command -v kubectl >/dev/null || { echo "kubectl is missing: make kubectl builds one" >&2; exit 1; }
testdata/install.sh containerd runc curl
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends debootstrap busybox-static bash-static etcd-server iproute2 >/dev/null
mkdir -p "$work/programs"

# A module that depends on Kubernetes, with the versions that Kubernetes itself uses.
kubernetes=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp testdata/conformance/e2e/e2e_test.go "$work/"
sed -e 's/^module .*/module e2e/' -e "s#=> \./staging/src/\(.*\)#=> \1 $staging#" -e "0,/^require (/s##&\n\tk8s.io/kubernetes $version#" "$kubernetes/go.mod" >"$work/go.mod"
cp "$kubernetes/go.sum" "$work/go.sum"
chmod +w "$work/go.sum"
export GOFLAGS=-mod=mod
[ -x "$work/ginkgo" ] || (cd "$work" && go build -o ginkgo github.com/onsi/ginkgo/v2/ginkgo)
info=k8s.io/component-base/version
[ -x "$work/e2e.test" ] || (cd "$work" && go test -c -vet=off -o e2e.test \
	-ldflags "-s -w -X $info.gitVersion=$version -X $info.gitMajor=1 -X $info.gitMinor=37" .)
for program in test/images/agnhost test/images/nonewprivs; do
	(cd "$work" && CGO_ENABLED=0 go build -ldflags='-s -w' -o programs/ "k8s.io/kubernetes/$program")
done
(cd "$work" && CGO_ENABLED=0 go build -ldflags='-s -w' -o programs/kube-sample-apiserver k8s.io/sample-apiserver)
unset GOFLAGS

# The images: they share one root file system, which contains the programs of all.
root=$work/rootfs
if [ ! -f "$work/images.tar" ]; then
	rm -rf "$root"
	debootstrap --variant=minbase --include=bind9-dnsutils,ca-certificates,curl,etcd-server,iperf,iproute2,net-tools,netcat-openbsd,nginx-light,perl,procps,socat,telnet,wget \
		"$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$root" >"$work/debootstrap.log"
	cp "$work/programs/agnhost" "$work/programs/kube-sample-apiserver" "$root/"
	ln -s agnhost "$root/agnhost-2"
	cp "$kubernetes"/test/images/agnhost/porter/localhost.* "$root/"
	install -m 4755 "$work/programs/nonewprivs" "$root/usr/local/bin/nnp"
	ln -s /usr/bin/etcd /usr/bin/iperf "$root/usr/local/bin/"
	install -d -m 777 "$root/uploads"
	echo 'user-defined-in-image:x:1000:1000::/home:/bin/sh' >>"$root/etc/passwd"
	printf 'user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n' >>"$root/etc/group"
	go run ./testdata/conformance/images -rootfs "$root" -sources "$kubernetes/test/images" >"$work/images.tar.tmp"
	mv "$work/images.tar.tmp" "$work/images.tar"
fi

# Network namespaces with an address and a default route simulate separate machines.
space=monopod-conformance
data=$work/data
nodes=${NODES:-2}
pids=
link=
stop() {
	trap - EXIT INT TERM
	[ -z "$link" ] || rm "$link"
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	for pid in $pids; do wait "$pid" || true; done
	for n in $(seq "$nodes"); do
		nsenter --net="/run/netns/$space$n" bin/monopod reset --data-dir "$data$n" || true
		ip netns delete "$space$n" || true
	done
	ip link delete conformance0 || true
}
ip link add conformance0 type bridge
trap stop EXIT
trap 'exit 1' INT TERM
ip address add 10.77.0.1/24 dev conformance0
ip link set conformance0 up
for n in $(seq "$nodes"); do
	ip netns add "$space$n"
	ip link add "conformance$n" up master conformance0 type veth peer name eth0 netns "$space$n"
	ip -n "$space$n" link set lo up
	ip -n "$space$n" address add "10.77.0.$((n + 1))/24" dev eth0
	ip -n "$space$n" link set eth0 up
	ip -n "$space$n" route add default via 10.77.0.1
done

# monopod NUMBER FLAGS...: runs monopod on a machine.
monopod() {
	n=$1
	shift
	mkdir -p "$data$n/images"
	ln -f "$work/images.tar" "$data$n/images/images.tar"
	[ -z "${IMAGES:-}" ] || cp "$IMAGES"/*.tar "$data$n/images/"
	nsenter --net="/run/netns/$space$n" bin/monopod "$@" --data-dir "$data$n" \
		--eviction-hard='nodefs.available<1%,imagefs.available<1%' 2>"$work/monopod$n.log" &
	pids="$pids $!"
}

if [ ! -e /var/lib/kubelet ]; then # two tests of CSI drivers look there, on the machine
	link=/var/lib/kubelet
	ln -sfn "${data}1" $link
fi
monopod 1 serve --listen 10.77.0.2:6443 --node-name conformance --pod-cidr 10.90.0.0/16 --service-cluster-ip-range 10.97.0.0/16
until curl -sf -o /dev/null --unix-socket "${data}1/monopod.sock" http://x/readyz; do
	kill -0 "$pids" || { tail -n 20 "$work/monopod1.log" >&2; exit 1; }
	sleep 0.2
done
kubeconfig=${data}1/admin.kubeconfig
for n in $(seq 2 "$nodes"); do
	# shellcheck disable=SC2046 # the line is a command
	monopod "$n" $(bin/monopod token create --data-dir "${data}1" | cut -d' ' -f2-) --node-name "conformance$n"
	nsenter --net="/run/netns/${space}1" kubectl --kubeconfig "$kubeconfig" wait --for=create --timeout=1m "node/conformance$n"
done
nsenter --net="/run/netns/${space}1" kubectl --kubeconfig "$kubeconfig" wait --for=condition=Ready --timeout=5m nodes --all
[ -z "${IMAGES:-}" ] || testdata/programs/snapshots.sh | nsenter --net="/run/netns/${space}1" kubectl --kubeconfig "$kubeconfig" apply -f -

echo "running the tests ($arch); the log is $work/e2e.log"
rc=0
nsenter --net="/run/netns/${space}1" "$work/ginkgo" --procs="${PROCS:-4}" --timeout=24h --no-color --focus="$focus" --skip="$skip" \
	--output-dir="$work" --json-report=report.json "$work/e2e.test" -- -kubeconfig="$kubeconfig" \
	-provider=skeleton -num-nodes="$nodes" -disable-log-dump >"$work/e2e.log" 2>&1 || rc=$?
grep -aE '^  \[FAIL\]|^Ran |Passed' "$work/e2e.log" || true
exit "$rc"
