#!/bin/sh
# Runs Kubernetes' conformance tests against bin/monopod, which starts its own containerd, in a network namespace. The
# script builds the tests and their images from the module k8s.io/kubernetes, so it needs no registry. The first build
# takes half an hour.
#
#   testdata/conformance/run.sh [FOCUS [SKIP]]
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

# A network namespace with an address and a default route simulates a separate machine.
space=monopod-conformance
data=$work/data
pid=
link=
stop() {
	trap - EXIT INT TERM
	[ -z "$link" ] || rm "$link"
	if [ -n "$pid" ]; then
		kill "$pid" 2>/dev/null || true
		wait "$pid" || true
		nsenter --net="/run/netns/$space" bin/monopod reset --data-dir "$data" || true
	fi
	ip netns delete "$space" || true
}
ip netns add "$space"
trap stop EXIT
trap 'exit 1' INT TERM
ip link add conformance0 type veth peer name eth0 netns "$space"
ip address add 10.77.0.1/24 dev conformance0
ip link set conformance0 up
ip -n "$space" link set lo up
ip -n "$space" address add 10.77.0.2/24 dev eth0
ip -n "$space" link set eth0 up
ip -n "$space" route add default via 10.77.0.1

mkdir -p "$data/images"
if [ ! -e /var/lib/kubelet ]; then # two tests of CSI drivers look there, on the machine
	link=/var/lib/kubelet
	ln -sfn "$data" $link
fi
ln -f "$work/images.tar" "$data/images/images.tar"
[ -z "${IMAGES:-}" ] || cp "$IMAGES"/*.tar "$data/images/"
nsenter --net="/run/netns/$space" bin/monopod serve --data-dir "$data" --listen 10.77.0.2:6443 --node-name conformance \
	--pod-cidr 10.90.0.0/16 --service-cluster-ip-range 10.97.0.0/16 --eviction-hard='nodefs.available<1%,imagefs.available<1%' 2>"$work/monopod.log" &
pid=$!
until curl -sf -o /dev/null --unix-socket "$data/monopod.sock" http://x/readyz; do
	kill -0 "$pid" || { tail -n 20 "$work/monopod.log" >&2; exit 1; }
	sleep 0.2
done
[ -z "${IMAGES:-}" ] || testdata/programs/snapshots.sh | nsenter --net="/run/netns/$space" kubectl --kubeconfig "$data/admin.kubeconfig" apply -f -

echo "running the tests ($arch); the log is $work/e2e.log"
rc=0
nsenter --net="/run/netns/$space" "$work/ginkgo" --procs="${PROCS:-4}" --timeout=24h --no-color --focus="$focus" --skip="$skip" \
	--output-dir="$work" --json-report=report.json "$work/e2e.test" -- -kubeconfig="$data/admin.kubeconfig" \
	-provider=skeleton -num-nodes=1 -disable-log-dump >"$work/e2e.log" 2>&1 || rc=$?
grep -aE '^  \[FAIL\]|^Ran |Passed' "$work/e2e.log" || true
exit "$rc"
