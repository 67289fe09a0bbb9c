#!/bin/sh
# Runs an unmodified CSI driver and the Kubernetes project's sidecars in pods of bin/monopod, with the manifests in
# their modules. The script builds the sidecars from their Go modules (csi/go.mod). Monopod pulls every other image,
# unless an archive in the folder $WORK/images contains it.
#
#   testdata/programs/csi.sh [hostpath|kills]...
#
# It needs the programs that cluster.sh lists. KILLS is the number of rounds, by default 10; each round kills the server
# twice.
set -eu
cd "$(dirname "$0")/../.."
here=testdata/programs
space=monopod-csi
subnet=10.79.0
. $here/cluster.sh
manifests=$(go mod download -json k8s.io/kubernetes@v1.37.2 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')/test/e2e/testing-manifests/storage-csi

# The archive of the sidecars' images, whose tags are the versions of their modules.
mkdir -p "$work/images"
if [ ! -f "$work/images/sidecars.tar" ]; then
	export CGO_ENABLED=0 # the images have no C library
	images=
	for program in $(go list -C $here/csi -f '{{.ImportPath}}:{{.Module.Version}}' tool); do
		compile $here/csi "${program%:*}"
		name=${program##*/}
		images="$images registry.k8s.io/sig-storage/$name=$work/bin/${name%:*}"
	done
	# shellcheck disable=SC2086 # each image is a separate word
	go run ./testdata/conformance/images $images >"$work/sidecars.tar"
	mv "$work/sidecars.tar" "$work/images/"
fi
prepare
cp "$work"/images/*.tar "$data/images/"
serve

# volumes prints the mount points of CSI volumes, one per line.
volumes() { awk -v top="$top/" 'index($5, top) && /kubernetes.io[~\/]csi/ {print $5}' "/proc/$server/mountinfo" | sort; }
# claim NAME SIZE [MORE]: creates a claim for the host-path driver. MORE contains more fields of its spec.
claim() {
	k apply -f - <<-END
		apiVersion: v1
		kind: PersistentVolumeClaim
		metadata: {name: $1}
		spec: {storageClassName: hostpath, accessModes: [ReadWriteOnce], resources: {requests: {storage: $2}}${3:+, $3}}
	END
}
# restarts prints the UIDs of the pods and the restart counts of their containers.
restarts() { k get pods -l app=store -o 'jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}'; }

# signal NAME: sends a signal to the driver that runs in a pod of this server.
signal() {
	for pid in $(pgrep -x hostpathplugin); do
		! grep -q "$top/" "/proc/$pid/mountinfo" || kill -s "$1" "$pid"
	done
}

# deploy installs the host-path driver and the snapshot controller.
deploy() {
	! k get statefulset -n csi-hostpath csi-hostpathplugin >/dev/null 2>&1 || return 0
	rm -rf "$work/hostpath"
	mkdir "$work/hostpath"
	cp -r "$manifests/external-attacher" "$manifests/external-provisioner" "$manifests/external-resizer" "$manifests/external-snapshotter/csi-snapshotter" \
		"$manifests/hostpath/hostpath" "$work/hostpath/"
	sed "s#DATA#$top/hostpath#" $here/csi/kustomization.yaml >"$work/hostpath/kustomization.yaml"
	$here/snapshots.sh | k apply -f -
	k create namespace csi-hostpath
	k apply -k "$work/hostpath"
	k apply -f - <<-END
		apiVersion: storage.k8s.io/v1
		kind: StorageClass
		metadata: {name: hostpath}
		provisioner: hostpath.csi.k8s.io
		parameters: {kind: fast}
		volumeBindingMode: WaitForFirstConsumer
		allowVolumeExpansion: true
		---
		apiVersion: apps/v1
		kind: StatefulSet
		metadata: {name: store}
		spec:
		  replicas: 2
		  serviceName: store
		  podManagementPolicy: Parallel
		  selector: {matchLabels: {app: store}}
		  template:
		    metadata: {labels: {app: store}}
		    spec:
		      terminationGracePeriodSeconds: 1
		      containers: [{name: main, image: monopod.local/web:1, command: [/web, serve], volumeMounts: [{name: data, mountPath: /data}]}]
		  volumeClaimTemplates:
		    - metadata: {name: data}
		      spec: {storageClassName: hostpath, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
	END
	k rollout status -n csi-hostpath statefulset/csi-hostpathplugin --timeout=3m
	k rollout status statefulset/store --timeout=3m
}

hostpath() {
	deploy
	expect 'hostpath.csi.k8s.io' k get csinode node1 -o 'jsonpath={.spec.drivers[*].name}'
	expect '^10$' k get csinode node1 -o 'jsonpath={.spec.drivers[0].allocatable.count}'
	expect 'topology.hostpath.csi/node=node1' k get node node1 --show-labels
	expect 'true true' k get volumeattachments -o 'jsonpath={.items[*].status.attached}'
	expect 'hostpath.csi.k8s.io.*hostpath.csi.k8s.io' k get node node1 -o 'jsonpath={.status.volumesAttached[*].name}'
	k exec store-0 -- /web write /data/file first
	expect '^first$' k exec store-0 -- /web cat /data/file
	same 'each volume is mounted once' 2 "$(volumes | wc -l)"

	# A new pod reads the same content. Then the claims become larger, with a pod and without one.
	k delete pod store-0
	expect '^first$' k exec store-0 -- /web cat /data/file
	k patch pvc data-store-0 --type=merge -p '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}'
	expect '^2Gi$' k get pvc data-store-0 -o 'jsonpath={.status.capacity.storage}'
	claim offline 100Mi
	pod offline "$(used offline)"
	k delete pod offline
	k patch pvc offline --type=merge -p '{"spec":{"resources":{"requests":{"storage":"200Mi"}}}}'
	expect 'FileSystemResizePending|200Mi' k get pvc offline -o 'jsonpath={.status.conditions[*].type} {.status.capacity.storage}'
	pod offline "$(used offline)"
	expect '^200Mi$' k get pvc offline -o 'jsonpath={.status.capacity.storage}'
	k delete pod/offline pvc/offline

	# Statistics of a volume.
	expect '"name": ?"data-store-0"' k get --raw /api/v1/nodes/node1/proxy/stats/summary
	expect 'kubelet_volume_stats_capacity_bytes.*persistentvolumeclaim="data-store-0"' k get --raw /api/v1/nodes/node1/proxy/metrics

	# A snapshot, a claim restored from it, and a clone.
	k apply -f - <<-END
		apiVersion: snapshot.storage.k8s.io/v1
		kind: VolumeSnapshot
		metadata: {name: snap}
		spec: {volumeSnapshotClassName: csi-hostpath-snapclass, source: {persistentVolumeClaimName: data-store-0}}
	END
	expect '^true$' k get volumesnapshot snap -o 'jsonpath={.status.readyToUse}'
	k exec store-0 -- /web write /data/file second
	claim restored 2Gi 'dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: snap}'
	pod restored "$(used restored)"
	expect '^first$' k exec restored -- /web cat /data/file
	claim cloned 2Gi 'dataSource: {kind: PersistentVolumeClaim, name: data-store-0}'
	pod cloned "$(used cloned)"
	expect '^second$' k exec cloned -- /web cat /data/file
	k delete pod/restored pvc/restored pod/cloned pvc/cloned volumesnapshot/snap
	expect '^$' k get volumesnapshotcontents -o name

	# A block volume, two inline volumes, and a read-only mount.
	claim block 100Mi 'volumeMode: Block'
	pod block "$(used block)" 'volumeDevices: [{name: v, devicePath: /dev/disk}]'
	k exec block -- /web write /dev/disk words
	expect '^words' k exec block -- /web cat /dev/disk
	k delete pod/block pvc/block
	pod inline 'csi: {driver: hostpath.csi.k8s.io, volumeAttributes: {foo: bar}}'
	k exec inline -- /web write /data/file inline
	expect '^inline$' k exec inline -- /web cat /data/file
	pod generic 'ephemeral: {volumeClaimTemplate: {spec: {storageClassName: hostpath, accessModes: [ReadWriteOnce], resources: {requests: {storage: 50Mi}}}}}'
	expect '^Bound$' k get pvc generic-v -o 'jsonpath={.status.phase}'
	pod reader 'persistentVolumeClaim: {claimName: data-store-0, readOnly: true}'
	expect 'read-only file system' sh -c 'nsenter --net="$1" kubectl exec reader -- /web write /data/file third 2>&1 || true' - "$net"
	expect '^second$' k exec reader -- /web cat /data/file
	k delete pod/inline pod/generic pod/reader
	expect 'NotFound' sh -c 'nsenter --net="$1" kubectl get pvc generic-v 2>&1 || true' - "$net"

	# The scheduler knows how much room is left.
	expect 'hostpath' k get csistoragecapacities -A -o 'jsonpath={.items[*].storageClassName}'
	claim huge 20Gi
	k run huge --image=monopod.local/web:1 --overrides='{"spec":{"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"huge"}}]}}'
	expect 'did not have enough free storage' k get pod huge -o 'jsonpath={.status.conditions[*].message}'
	k delete pod/huge pvc/huge
	same 'each volume is mounted once' 2 "$(volumes | wc -l)"
}

# kills kills the server, then the driver: no data is lost, no volume is mounted twice, and no pod of store restarts.
kills() {
	deploy
	k exec store-0 -- /web write /data/file other
	k exec store-1 -- /web write /data/file kept
	kills=${KILLS:-10}
	for n in $(seq "$kills"); do
		before=$(volumes) pods=$(restarts)
		kill -9 "$server"
		wait "$server" || true
		serve
		k wait --for=condition=Ready node/node1 >/dev/null
		same "kill $n: mounts" "$before" "$(volumes)"
		same "kill $n: pods" "$pods" "$(restarts)"
		# The second kill happens during the replacement of a pod, up to three seconds after its deletion.
		k delete pod store-1 --wait=false
		at=$((300 * n / kills))
		sleep "$((at / 100)).$((at / 10 % 10))$((at % 10))"
		kill -9 "$server"
		wait "$server" || true
		serve
		expect '^kept$' k exec store-1 -- /web cat /data/file
		same "kill $n: each volume is mounted once" 2 "$(volumes | wc -l)"
	done

	before=$(volumes) pods=$(restarts)
	signal KILL
	expect '^kept$' k exec store-1 -- /web cat /data/file
	expect '^1$' k get pod -n csi-hostpath csi-hostpathplugin-0 -o 'jsonpath={.status.containerStatuses[?(@.name=="hostpath")].restartCount}'
	k delete pod -n csi-hostpath csi-hostpathplugin-0
	same 'mounts without the driver' "$before" "$(volumes)"
	same 'pods without the driver' "$pods" "$(restarts)"
	k rollout status -n csi-hostpath statefulset/csi-hostpathplugin --timeout=3m
	k delete pod store-1
	expect '^kept$' k exec store-1 -- /web cat /data/file

	# A driver that does not respond does not block other pods.
	signal STOP
	k delete pod store-1 --wait=false
	pod other 'emptyDir: {}'
	k delete pod other
	expect '^other$' k exec store-0 -- /web cat /data/file
	signal CONT
	expect '^kept$' k exec store-1 -- /web cat /data/file
	same 'each volume is mounted once' 2 "$(volumes | wc -l)"
}

# nothing deletes the driver and its volumes: no mount, attachment, folder or loop device is left.
nothing() {
	k delete statefulset store
	k delete pvc --all
	expect '^$' k get persistentvolumes -o name
	expect '^$' k get volumeattachments -o name
	expect '^$' k get node node1 -o 'jsonpath={.status.volumesAttached}{.status.volumesInUse}'
	same 'nothing is mounted' '' "$(volumes)"
	same 'nothing is stored' '0' "$(find "$top/hostpath" -mindepth 1 -type d | wc -l)"
	same 'no loop device' '' "$(losetup -n -O BACK-FILE | grep "$top/hostpath")"
	k delete -k "$work/hostpath"
	expect '^$' k get csinode node1 -o 'jsonpath={.spec.drivers[*].name}'
}

parts ${*:-hostpath kills} nothing
