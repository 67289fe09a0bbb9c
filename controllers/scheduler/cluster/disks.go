package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// disk is a block device that a pod's spec names directly, not through a claim. Two pods on a node can use it only if
// both mount it read-only.
type disk struct {
	id       string
	readOnly bool // mounted read-only
}

// disks returns the disks of a pod. A Ceph image is a disk for each of its monitors.
func disks(pod *corev1.Pod) []disk {
	var out []disk
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.GCEPersistentDisk != nil:
			out = append(out, disk{"gce " + v.GCEPersistentDisk.PDName, v.GCEPersistentDisk.ReadOnly})
		case v.AWSElasticBlockStore != nil:
			out = append(out, disk{"aws " + v.AWSElasticBlockStore.VolumeID, false})
		case v.ISCSI != nil:
			out = append(out, disk{"iscsi " + v.ISCSI.IQN, v.ISCSI.ReadOnly})
		case v.RBD != nil:
			for _, monitor := range v.RBD.CephMonitors {
				out = append(out, disk{"rbd " + monitor + " " + v.RBD.RBDPool + " " + v.RBD.RBDImage, v.RBD.ReadOnly})
			}
		}
	}
	return out
}

// SharesDisk reports whether the pods use the same disk in a conflicting way.
func (p *Pod) SharesDisk(other *Pod) bool {
	return slices.ContainsFunc(p.disks, func(a disk) bool {
		return slices.ContainsFunc(other.disks, func(b disk) bool { return a.id == b.id && (!a.readOnly || !b.readOnly) })
	})
}

// DisksTaken reports whether a pod of the node uses a disk of p in a conflicting way.
func (n *Node) DisksTaken(p *Pod) bool {
	if len(p.disks) == 0 {
		return false
	}
	for _, other := range n.Pods {
		if p.SharesDisk(other) {
			return true
		}
	}
	return false
}
