#!/bin/bash
# Runs Kubernetes' own kubelet and kube-proxy, with containerd and Debian's CNI plugins, as a node of bin/monopod. The
# node is the virtual machine of testdata/vm/machine.sh, because kubelet needs cgroup v2; the server runs in a network
# namespace of this machine, and a bridge connects both. The script builds kubelet and kube-proxy from the module
# k8s.io/kubernetes, so it needs no registry.
#
#   testdata/programs/kubelet.sh [pods|network|life]...
#
# VERSION is the version of Kubernetes, by default v1.37.2. The script needs root, apt, the Go proxy, /dev/net/tun, the
# programs that cluster.sh lists, and bin/runtime-amd64 (make build). The first run builds for ten minutes; another one
# takes eight minutes on two cores without KVM, three of them until the certificates rotate.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=testdata/programs
space=monopod-kubelet
subnet=10.80.0
. $here/cluster.sh
version=${VERSION:-v1.37.2}
programs=$work/$version
arch=amd64
vm=$work/vm
qemu=
packages=nftables,iptables,containernetworking-plugins
. testdata/vm/machine.sh
command -v "${emulator%% *}" debootstrap mkfs.ext4 ssh >/dev/null ||
	apt-get install -y -qq --no-install-recommends $package debootstrap e2fsprogs openssh-client >/dev/null
mkdir -p "$programs/src" "$programs/bin" "$vm"

# A module that depends on Kubernetes, with the versions that Kubernetes itself uses (testdata/conformance/run.sh).
if [ ! -x "$programs/bin/kube-proxy" ]; then
	kubernetes=$(go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	sed -e 's/^module .*/module programs/' -e "s#=> \./staging/src/\(.*\)#=> \1 v0${version#v1}#" \
		-e "0,/^require (/s##&\n\tk8s.io/kubernetes $version#" "$kubernetes/go.mod" >"$programs/src/go.mod"
	install -m 644 "$kubernetes/go.sum" "$programs/src/go.sum"
	info=k8s.io/component-base/version
	minor=${version#v1.}
	(cd "$programs/src" && GOFLAGS=-mod=mod CGO_ENABLED=0 nice go build -o ../bin/ -ldflags \
		"-s -w -X $info.gitVersion=$version -X $info.gitMajor=1 -X $info.gitMinor=${minor%.*}" k8s.io/kubernetes/cmd/{kubelet,kube-proxy})
fi
if [ ! -x "$work/bin/ctr" ]; then
	mkdir -p "$work/bin"
	cp testdata/runtime/go.mod "$work/ctr.mod"
	cp testdata/runtime/go.sum "$work/ctr.sum"
	CGO_ENABLED=0 nice go build -C testdata/runtime -modfile "$work/ctr.mod" -mod=mod -trimpath -tags 'no_dynamic_plugins osusergo netgo' \
		-o "$work/bin/" github.com/containerd/containerd/v2/cmd/ctr
fi
make_disk

# The node's second disk contains the programs, the images and the configuration.
disk=$work/disk
rm -rf "$disk"
mkdir -p "$disk/bin" "$disk/etc"
cp "$programs"/bin/kube* "$work/bin/ctr" bin/runtime-amd64/{containerd,containerd-shim-runc-v2,runc} "$disk/bin/"
cp bin/web.tar "$disk/"
go run ./testdata/conformance/images "monopod.local/pause:1=agent/runtime/oci/pause/pause_$arch" >"$disk/pause.tar"
cat >"$disk/etc/containerd.toml" <<'END'
version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "monopod.local/pause:1"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
    SystemdCgroup = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/usr/lib/cni"]
END
cat >"$disk/etc/kubelet.yaml" <<'END'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/ca.crt}}
authorization: {mode: Webhook}
serverTLSBootstrap: true
rotateCertificates: true
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDomain: cluster.local
clusterDNS: [10.97.0.10]
nodeStatusUpdateFrequency: 5s
END
cat >"$disk/etc/kube-proxy.yaml" <<'END'
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: worker
clientConnection: {kubeconfig: /etc/kubernetes/kube-proxy.kubeconfig}
END

finish() {
	trap - EXIT INT TERM
	if [ -n "$qemu" ]; then
		for unit in containerd kubelet kube-proxy; do
			box "journalctl -u $unit --no-pager -o cat" >"$work/$unit.log" 2>/dev/null || true
		done
		cut_power
	fi
	ip link delete "${bridge}1" || true
	ip link delete "$bridge" || true
	stop
}
bridge=mpkubelet
prepare
trap finish EXIT
ip link add "$bridge" type bridge
ip address delete "$subnet.1/24" dev "${space#monopod-}0"
ip address add "$subnet.1/24" dev "$bridge"
ip link set "$bridge" up
ip link set "${space#monopod-}0" master "$bridge"
ip tuntap add "${bridge}1" mode tap
ip link set "${bridge}1" up master "$bridge"
serve --cluster-signing-duration=6m # so that the certificates of the kubelet rotate within the test

ssh_port=$(free_port)
api_port=$(free_port)
node=$subnet.3
cp --sparse=always "$vm/clean.raw" "$vm/disk.raw"
rm -f "$work/programs.raw"
truncate -s 1G "$work/programs.raw"
mkfs.ext4 -q -d "$disk" "$work/programs.raw"
boot 1500 -drive "file=$work/programs.raw,format=raw,if=virtio" \
	-netdev "tap,id=pods,ifname=${bridge}1,script=no,downscript=no" -device virtio-net-pci,netdev=pods

# unit NAME COMMAND...: runs a program of the second disk on the node, as a service.
unit() {
	box "systemd-run --quiet --collect --unit=$1 --property=Restart=always --property=RestartSec=2 \
		--property=KillMode=process --property=Delegate=yes --setenv=PATH=/node/bin:/usr/sbin:/usr/bin:/sbin:/bin ${*:2}"
}
# sample NAME NODE: creates a pod of the Service web on a node.
sample() {
	k apply -f - <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $1, labels: {app: web}}
		spec:
		  nodeSelector: {kubernetes.io/hostname: $2}
		  terminationGracePeriodSeconds: 1
		  containers:
		    - name: main
		      image: monopod.local/web:1
		      ports: [{containerPort: 8080}]
		      env: [{name: WORD, valueFrom: {configMapKeyRef: {name: words, key: word}}}]
		      readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 2}
		      volumeMounts: [{name: words, mountPath: /words}]
		  volumes: [{name: words, configMap: {name: words}}]
	END
}
samples() {
	k get configmap words >/dev/null 2>&1 || k create configmap words --from-literal=word=first
	k get service web >/dev/null 2>&1 || k create service nodeport web --tcp=80:8080 --node-port=30080
	sample near node1
	sample far worker
	expect 'condition met' k wait --for=condition=Ready --timeout=90s pod/near pod/far
}

# join starts the node.
join() {
	box "mkdir -p /node /etc/kubernetes && mount /dev/vdb /node && cp /node/etc/* /etc/kubernetes/ &&
		ip address add $node/24 dev ens4 && ip link set ens4 up && modprobe -a overlay br_netfilter &&
		sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1"
	unit containerd containerd --config /etc/kubernetes/containerd.toml
	for image in pause web; do
		box "for n in 1 2 3 4 5 6 7 8 9; do /node/bin/ctr -n k8s.io images import /node/$image.tar >/dev/null 2>&1 && exit; sleep 2; done; exit 1"
	done
	inside "$monopod" token create --data-dir "$data" --bootstrap-kubeconfig "$top/bootstrap.kubeconfig"
	sed -n 's/.*certificate-authority-data: //p' "$top/bootstrap.kubeconfig" | base64 -d >"$top/ca.crt"
	put "$top/bootstrap.kubeconfig" "$top/ca.crt" /etc/kubernetes/
	unit kubelet kubelet --config /etc/kubernetes/kubelet.yaml --hostname-override=worker --node-ip="$node" \
		--bootstrap-kubeconfig /etc/kubernetes/bootstrap.kubeconfig --kubeconfig /etc/kubernetes/kubelet.kubeconfig
	expect 'worker' k get node worker
	expect '^10\.[0-9.]*/24$' k get node worker -o 'jsonpath={.spec.podCIDR}'
	expect 'NetworkReady=false|NetworkPluginNotReady' k get node worker -o 'jsonpath={.status.conditions[?(@.type=="Ready")].message}'

	# The pod network: a bridge with the range of the Node, and a route to the pods of the server's node.
	range=$(k get node worker -o 'jsonpath={.spec.podCIDR}')
	box "mkdir -p /etc/cni/net.d && cat >/etc/cni/net.d/10-bridge.conflist && ip route add $(k get node node1 -o 'jsonpath={.spec.podCIDR}') via $address" <<-END
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [
			{"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
			 "ipam": {"type": "host-local", "ranges": [[{"subnet": "$range"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
	END
	expect 'condition met' k wait --for=condition=Ready --timeout=60s node/worker
	expect "$version" k get node worker -o 'jsonpath={.status.nodeInfo.kubeletVersion}'
	expect "^$node$" k get node worker -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'
	expect 'kube-apiserver-client-kubelet +system:bootstrap:.*Approved,Issued' k get csr
	expect 'kubelet-serving +system:node:worker.*Approved,Issued' k get csr

	# kube-proxy uses a service account, as with kubeadm.
	k create serviceaccount -n kube-system kube-proxy
	k create clusterrolebinding kube-proxy --clusterrole=system:node-proxier --serviceaccount=kube-system:kube-proxy
	cp "$top/bootstrap.kubeconfig" "$top/kube-proxy.kubeconfig"
	k --kubeconfig "$top/kube-proxy.kubeconfig" config set-credentials tls-bootstrap-token-user \
		--token="$(k create token -n kube-system kube-proxy --duration=24h)"
	put "$top/kube-proxy.kubeconfig" /etc/kubernetes/
	unit kube-proxy kube-proxy --config /etc/kubernetes/kube-proxy.yaml
	expect 'ok|healthy|lastUpdated' box curl -sS http://127.0.0.1:10256/healthz
}

# ask_kubelet prints the status code of the kubelet's response to a request with $token.
token=
ask_kubelet() { inside curl -sk -o /dev/null -w '%{http_code}\n' ${token:+-H "Authorization: Bearer $token"} "https://$node:10250/pods"; }

# pods runs a pod, and uses it through the server, which calls the kubelet.
pods() {
	samples
	expect 'listening|serv' k logs far
	expect '^first$' k exec far -- /web cat /words/word
	expect '^WORD=first$' k exec far -- /web env
	expect '^input$' sh -c 'echo input | nsenter --net="$1" kubectl exec -i far -- /web cat' - "$net"
	start forward kubectl port-forward pod/far 18080:8080
	expect '.' inside curl -sS --fail http://127.0.0.1:18080/
	expect '"gitVersion"' k exec far -- /web api /version
	expect 'worker +[0-9]+m' k top nodes
	expect 'far +[0-9]+m +[0-9]+Mi' k top pods
	expect 'kubelet_running_pods' k get --raw /api/v1/nodes/worker/proxy/metrics
	expect '"kind": ?"PodList"' k get --raw /api/v1/nodes/worker/proxy/pods
	expect 'ephemeral' sh -c 'nsenter --net="$1" kubectl debug far --image=monopod.local/web:1 --target=main -c ephemeral -- /web echo ephemeral &&
		for n in 1 2 3 4 5 6 7 8 9; do nsenter --net="$1" kubectl logs far -c ephemeral && exit; sleep 1; done; exit 1' - "$net"
	k patch configmap words -p '{"data":{"word":"second"}}'
	expect '^second$' k exec far -- /web cat /words/word

	# Without credentials, and as another user, nobody calls the kubelet.
	expect '^401$' ask_kubelet
	token=$(k create token default)
	expect '^403$' ask_kubelet
	k create clusterrolebinding kubelet-readers --clusterrole=system:kubelet-api-admin --serviceaccount=default:default
	expect '^200$' ask_kubelet
}

# network reaches pods and Services from both nodes.
network() {
	samples
	local near far cluster
	near=$(k get pod near -o 'jsonpath={.status.podIP}')
	far=$(k get pod far -o 'jsonpath={.status.podIP}')
	cluster=$(k get service web -o 'jsonpath={.spec.clusterIP}')
	expect 'via 10.80.0.3' ip -n "$space" route show "$(k get node worker -o 'jsonpath={.spec.podCIDR}')"
	expect '.' k exec near -- /web get "http://$far:8080/"
	expect '.' k exec far -- /web get "http://$near:8080/"
	expect '.' k exec far -- /web get http://web.default.svc.cluster.local 10s
	expect '.' k exec near -- /web get http://web.default.svc.cluster.local 10s
	expect '.' inside curl -sS --fail -m 10 "http://$address:30080/"
	expect '.' inside curl -sS --fail -m 10 "http://$node:30080/"
	for only in near far; do # each node reaches an endpoint on either one
		k label pod --all app- >/dev/null
		k label pod $only app=web >/dev/null
		expect "^$(k get pod $only -o 'jsonpath={.status.podIP}')$" k get endpointslices -l kubernetes.io/service-name=web -o 'jsonpath={.items[*].endpoints[*].addresses[*]}'
		for from in near far; do
			expect "$only" k exec $from -- /web get "http://$cluster/" 10s
		done
	done
	k label pod --all app=web --overwrite >/dev/null
	expect '^0$' box 'journalctl -u kube-proxy -u kubelet -o cat | grep -ci forbidden || true'
}

# life drains the node, restarts its programs, rotates its certificates, and takes it away.
life() {
	samples
	local id
	id=$(k get pod far -o 'jsonpath={.status.containerStatuses[0].containerID}')
	box systemctl restart kubelet
	expect 'condition met' k wait --for=condition=Ready --timeout=60s node/worker
	expect '^(second|first)$' k exec far -- /web cat /words/word
	same 'the pod has survived a restart of the kubelet' "$id" "$(k get pod far -o 'jsonpath={.status.containerStatuses[0].containerID}')"
	kill "$server"
	wait "$server" || true
	serve --cluster-signing-duration=6m
	expect 'condition met' k wait --for=condition=Ready --timeout=60s node/worker
	same 'the pod has survived a restart of the server' "$id" "$(k get pod far -o 'jsonpath={.status.containerStatuses[0].containerID}')"

	for _ in $(seq 24); do # the kubelet rotates after 70 to 90 % of a certificate's lifetime
		! k get csr | grep -qE 'kube-apiserver-client-kubelet +system:node:worker.*Approved,Issued' || break
		sleep 15
	done
	expect 'kube-apiserver-client-kubelet +system:node:worker.*Approved,Issued' k get csr
	expect '^[2-9]' sh -c 'nsenter --net="$1" kubectl get csr | grep -cE "kubelet-serving +system:node:worker.*Approved,Issued"' - "$net"
	expect '^[0-9]$' sh -c 'nsenter --net="$1" kubectl get csr -o name | wc -l' - "$net" # not again and again
	expect '^(second|first)$' k exec far -- /web cat /words/word

	expect 'drained' k drain worker --force --ignore-daemonsets
	expect 'NotFound' sh -c 'nsenter --net="$1" kubectl get pod far 2>&1 || true' - "$net"
	k uncordon worker
	sample far worker
	expect 'condition met' k wait --for=condition=Ready --timeout=60s pod/far
	box systemctl stop kubelet
	expect 'Unknown' k get node worker -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
	expect 'worker' "$monopod" why node/worker --data-dir "$data"
	k delete node worker
	expect 'NotFound' sh -c 'nsenter --net="$1" kubectl get pod far 2>&1 || true' - "$net"
	expect '^$' ip -n "$space" route show via "$node"
}

parts join ${*:-pods network life}
