#!/bin/bash
# Runs the unmodified csi-driver-nfs in the virtual machine of machine.sh, which is also the NFS server. It has the
# requirements of run.sh and cluster.sh. MANIFESTS is the driver's folder deploy, and IMAGES a folder with archives of
# all images in these manifests, because the machine reaches no registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=amd64
vm=${VM_DIR:-/var/tmp/monopod-vm-test}
space=monopod-nfs
subnet=
. testdata/vm/machine.sh
. testdata/programs/cluster.sh
k() { kubectl "$@"; }
mkdir -p "$vm" "$work"
ssh_port=$(free_port)
api_port=$(free_port)
qemu=
disk=$(mktemp -d)
trap 'umount "$disk" 2>/dev/null || true; rmdir "$disk"; [ -z "$qemu" ] || kill -9 "$qemu" 2>/dev/null || true' EXIT

make_disk
cp --sparse=always "$vm/clean.raw" "$vm/disk.raw"
mount -o loop "$vm/disk.raw" "$disk"
chroot "$disk" sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends nfs-kernel-server' >"$work/apt.log" 2>&1
rm -rf "$disk"/var/cache/apt/archives/*.deb
mkdir -p "$disk/srv/nfs" "$disk/var/lib/monopod/images"
echo '/srv/nfs *(rw,no_subtree_check,no_root_squash)' >"$disk/etc/exports"
cp "$monopod" "$disk/root/monopod"
cp "${WEB:-bin/web.tar}" "$IMAGES"/*.tar "$disk/var/lib/monopod/images/"
umount "$disk"

boot 3072
box '/root/monopod install -- --listen=0.0.0.0:6443 --node-name=node1' >"$work/install.log"
export KUBECONFIG=$work/kubeconfig
expect ready box 'monopod status >/dev/null && echo ready'
box 'cat /var/lib/monopod/admin.kubeconfig' >"$KUBECONFIG"
k config set-cluster "$(k config view -o 'jsonpath={.clusters[0].name}')" --server="https://127.0.0.1:$api_port" --tls-server-name=localhost >/dev/null

for part in rbac-csi-nfs csi-nfs-driverinfo csi-nfs-controller csi-nfs-node; do
	k apply -f "$MANIFESTS/$part.yaml"
done
k apply -f - <<-END2
	apiVersion: storage.k8s.io/v1
	kind: StorageClass
	metadata: {name: nfs}
	provisioner: nfs.csi.k8s.io
	parameters: {server: 127.0.0.1, share: /srv/nfs}
	mountOptions: [nfsvers=4.1]
	allowVolumeExpansion: true
	---
	apiVersion: v1
	kind: PersistentVolumeClaim
	metadata: {name: shared}
	spec: {storageClassName: nfs, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
	---
	apiVersion: v1
	kind: PersistentVolumeClaim
	metadata: {name: denied}
	spec: {storageClassName: "", volumeName: denied, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
	---
	apiVersion: v1
	kind: PersistentVolume
	metadata: {name: denied}
	spec:
	  capacity: {storage: 1Gi}
	  accessModes: [ReadWriteMany]
	  claimRef: {namespace: default, name: denied}
	  mountOptions: [nfsvers=4.1]
	  csi: {driver: nfs.csi.k8s.io, volumeHandle: denied, volumeAttributes: {server: 127.0.0.1, share: /srv/missing}}
END2
k rollout status -n kube-system daemonset/csi-nfs-node --timeout=10m
k rollout status -n kube-system deployment/csi-nfs-controller --timeout=10m
expect 'nfs.csi.k8s.io' k get csinode node1 -o 'jsonpath={.spec.drivers[*].name}'
pod writer "$(used shared)"
pod other "$(used shared)"
k exec writer -- /web write /data/file words
expect '^words$' k exec other -- /web cat /data/file
expect '127.0.0.1:/srv/nfs.* nfs4 ' box cat /proc/mounts
expect words box 'cat /srv/nfs/pvc-*/file'
k patch pvc shared --type=merge -p '{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}'
expect '^2Gi$' k get pvc shared -o 'jsonpath={.status.capacity.storage}'

# Restarts of Monopod and of the machine.
box 'systemctl kill --kill-whom=main -s KILL monopod'
expect '^words$' k exec other -- /web cat /data/file
same 'mounts of a killed Monopod' 2 "$(box 'grep -c " nfs4 " /proc/mounts')"
expect '^0 0$' k get pod writer other -o 'jsonpath={.items[*].status.containerStatuses[*].restartCount}'
box 'systemctl reboot' || true
sleep 5
answers
expect ready box 'monopod status >/dev/null && echo ready'
expect '^words$' k exec other -- /web cat /data/file
same 'mounts after a reboot' 2 "$(box 'grep -c " nfs4 " /proc/mounts')"

pod denied "$(used denied)" >/dev/null 2>&1 & # the pod never becomes ready
expect 'the driver nfs.csi.k8s.io fails to mount its volume' box 'monopod why pod/denied || true'
box 'monopod why pod/denied' || true
k delete pod/denied pvc/denied pv/denied --wait=false
k delete pod/writer pod/other pvc/shared
expect '^$' k get persistentvolumes -o name
same 'nothing is mounted' 0 "$(box 'grep -c " nfs4 " /proc/mounts || true')"
same 'nothing is stored' '' "$(box 'ls /srv/nfs')"
box 'monopod status' | tail -n 20
[ "$failed" = 0 ] && echo "all good"
exit "$failed"
