#!/bin/bash
# Runs flannel, with its manifest as upstream has it, as the pod network of two machines of bin/monopod
# (--node-network=cni). Network namespaces, with mounts of their own, simulate the machines. The script builds flannel
# and its CNI plugin from their sources, so it needs no registry.
#
#   testdata/programs/flannel.sh [vxlan|host-gw]...
#
# The script needs root, apt, git, the Go proxy, Debian's CNI plugins, nft_compat in the kernel, and the programs that
# cluster.sh lists. The first run builds for some minutes; another one takes three minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
space=monopod-flannel
subnet=10.81.0
. testdata/programs/cluster.sh
version=v0.28.10
plugin=v1.9.1-flannel3
need debootstrap git
[ -d /usr/lib/cni ] || apt-get install -y -qq --no-install-recommends containernetworking-plugins >/dev/null

# The Go proxy does not have the sources of the plugin, nor one module of a cloud's backend.
[ -d "$work/cni-plugin" ] || git clone -q --depth 1 --branch "$plugin" https://github.com/flannel-io/cni-plugin "$work/cni-plugin"
if [ ! -d "$work/flannel" ]; then
	cp -r "$(go mod download -json "github.com/flannel-io/flannel@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$work/flannel"
	chmod -R u+w "$work/flannel"
	sed -i -e '/backend\/tencentvpc"/d' -e '/backend\/udp"/d' "$work/flannel/main.go" # udp needs cgo
fi
if [ ! -f "$work/flannel.tar" ]; then
	mkdir -p "$work/bin"
	CGO_ENABLED=0 nice go build -C "$work/flannel" -trimpath -ldflags='-s -w' -o "$work/bin/flanneld" .
	CGO_ENABLED=0 nice go build -C "$work/flannel" -trimpath -ldflags='-s -w' -o "$work/bin/install-conf" ./cmd/install_conf
	CGO_ENABLED=0 nice go build -C "$work/cni-plugin" -trimpath -ldflags='-s -w' -o "$work/bin/plugin" .
	root=$work/rootfs
	[ -d "$root" ] || debootstrap --variant=minbase --include=iproute2,iptables,nftables \
		"$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" "$root" >"$work/debootstrap.log"
	install -D "$work/bin/flanneld" "$work/bin/install-conf" -t "$root/opt/bin"
	install "$work/bin/plugin" "$root/flannel"
	go run ./testdata/conformance/images -rootfs "$root" "ghcr.io/flannel-io/flannel:$version=$work/bin/flanneld" \
		"ghcr.io/flannel-io/flannel-cni-plugin:$plugin=$work/bin/plugin" >"$work/flannel.tar.tmp"
	mv "$work/flannel.tar.tmp" "$work/flannel.tar"
fi

# The machines: a bridge connects their network namespaces.
bridge=mpflannel
machines='1 2'
finish() {
	trap - EXIT INT TERM
	for pid in $pids; do kill "$pid" 2>/dev/null || true; done
	for pid in $pids; do wait "$pid" || true; done
	for n in $machines; do
		nsenter --net="/run/netns/$space$n" "$monopod" reset --data-dir "$top/$n" || true
		ip netns delete "$space$n" || true
	done
	ip link delete "$bridge" || true
	rm -rf "$top"
}
mkdir -p /run/flannel /etc/cni/net.d /opt/cni/bin
top=$(mktemp -d)
ip link add "$bridge" type bridge
trap finish EXIT
trap 'exit 1' INT TERM
ip address add "$subnet.1/24" dev "$bridge"
ip link set "$bridge" up
for n in $machines; do
	ip netns add "$space$n"
	ip link add "$bridge$n" up master "$bridge" type veth peer name eth0 netns "$space$n"
	ip -n "$space$n" link set lo up
	ip -n "$space$n" address add "$subnet.$((n + 1))/24" dev eth0
	ip -n "$space$n" link set eth0 up
	ip -n "$space$n" route add default via "$subnet.1"
	mkdir -p "$top/$n/images"
	cp "$work/flannel.tar" "${WEB:-bin/web.tar}" "$top/$n/images/"
done
net=/run/netns/${space}1
export KUBECONFIG=$top/1/admin.kubeconfig

# machine NUMBER COMMAND [FLAG...]: runs monopod on a machine, with folders of its own for flannel and for the plugins,
# which Kubernetes' package kubernetes-cni would install.
machine() {
	nsenter --net="/run/netns/$space$1" unshare --mount sh -c '
		for dir in /run/flannel /etc/cni/net.d /opt/cni/bin; do mount -t tmpfs tmpfs $dir; done
		cp /usr/lib/cni/* /opt/cni/bin
		exec "$@"' - "$monopod" "${@:2}" --data-dir "$top/$1" --node-network=cni \
		--eviction-hard='nodefs.available<1%,imagefs.available<1%' >>"$work/monopod$1.log" 2>&1 &
	pids="$! $pids"
}
: >"$work/monopod1.log" >"$work/monopod2.log"
machine 1 serve --node-name node1 --listen "$address:6443" --cluster-cidr 10.244.0.0/16 --service-cluster-ip-range 10.97.0.0/16
until curl -sf -o /dev/null --unix-socket "$top/1/monopod.sock" http://x/readyz || k get node node1 >/dev/null 2>&1; do
	kill -0 "${pids%% *}" || { tail -n 20 "$work/monopod1.log" >&2; exit 1; }
	sleep 0.2
done
# shellcheck disable=SC2046 # the line is a command
machine 2 $("$monopod" token create --data-dir "$top/1" | cut -d' ' -f2-) --node-name node2
for n in $machines; do
	expect "^10\.244\.[0-9]+\.0/24$" k get node "node$n" -o 'jsonpath={.spec.podCIDR}'
	expect 'cni plugin not initialized' k get node "node$n" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].message}'
done

# use BACKEND: installs flannel with a backend, and runs pods on both nodes.
use() {
	sed "s/\"Type\": \"vxlan\"/\"Type\": \"$1\"/" "$work/flannel/Documentation/kube-flannel.yml" | k apply -f -
	k -n kube-flannel rollout restart daemonset kube-flannel-ds >/dev/null
	k -n kube-flannel rollout status daemonset kube-flannel-ds --timeout=3m
	expect "condition met" k wait --for=condition=Ready --timeout=60s node/node1 node/node2
	expect "^$1\$" k get node node2 -o 'jsonpath={.metadata.annotations.flannel\.alpha\.coreos\.com/backend-type}'
	k delete daemonset web --ignore-not-found --cascade=foreground >/dev/null
	k apply -f - <<-END
		apiVersion: apps/v1
		kind: DaemonSet
		metadata: {name: web}
		spec:
		  selector: {matchLabels: {app: web}}
		  template:
		    metadata: {labels: {app: web}}
		    spec:
		      terminationGracePeriodSeconds: 1
		      containers:
		      - name: main
		        image: monopod.local/web:1
		        ports: [{containerPort: 8080}]
		        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2}
		---
		apiVersion: v1
		kind: Service
		metadata: {name: web}
		spec:
		  type: NodePort
		  selector: {app: web}
		  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
	END
	k rollout status daemonset web --timeout=2m
	near=$(k get pods -l app=web --field-selector spec.nodeName=node1 -o 'jsonpath={.items[0].metadata.name}')
	far=$(k get pods -l app=web --field-selector spec.nodeName=node2 -o 'jsonpath={.items[0].metadata.name}')
}
ip_of() { k get pod "$1" -o 'jsonpath={.status.podIP}'; }
# reach: pods, Services and names are reached from the pods of both nodes.
reach() {
	for n in $machines; do
		pod=$([ "$n" = 1 ] && echo "$near" || echo "$far")
		range=$(k get node "node$n" -o 'jsonpath={.spec.podCIDR}')
		expect "^${range%0/24}" ip_of "$pod"
	done
	cluster=$(k get service web -o 'jsonpath={.spec.clusterIP}')
	for from in $near $far; do
		for to in $near $far; do
			expect "$to" k exec "$from" -- /web get "http://$(ip_of "$to"):8080/" 5s
			expect "$to" k exec "$from" -- /web get "http://$cluster/" 5s
			expect "$to" k exec "$from" -- /web get http://web.default.svc.cluster.local/ 5s
		done
		expect 'gitVersion' k exec "$from" -- /web api /version
		expect 'listen' k logs "$from"
	done
	for n in $machines; do
		expect "$near|$far" inside curl -sS --fail -m 5 "http://$subnet.$((n + 1)):30080/"
		expect "$near|$far" nsenter --net="/run/netns/$space$n" curl -sS --fail -m 5 "http://$cluster/"
	done
	expect '^2$' k get endpointslices -l kubernetes.io/service-name=web -o 'go-template={{range .items}}{{len .endpoints}}{{end}}'
}
vxlan() {
	use vxlan
	expect 'flannel.1' ip -n "${space}1" route show "$(k get node node2 -o 'jsonpath={.spec.podCIDR}')"
	reach
}
host-gw() {
	use host-gw
	expect "via $subnet.3 dev eth0" ip -n "${space}1" route show "$(k get node node2 -o 'jsonpath={.spec.podCIDR}')"
	reach
}
parts ${*:-vxlan host-gw}
