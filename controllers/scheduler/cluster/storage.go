package cluster

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Storage contains the state that volume rules depend on: claims by namespace/name, other objects by name.
type Storage struct {
	Claims  map[string]*corev1.PersistentVolumeClaim
	Volumes map[string]*corev1.PersistentVolume
	Classes map[string]*storagev1.StorageClass
	Nodes   map[string]*storagev1.CSINode
	Drivers map[string]*storagev1.CSIDriver
	// Capacities are by namespace/name, Attachments by node and name.
	Capacities  map[string]*storagev1.CSIStorageCapacity
	Attachments map[string]map[string]*storagev1.VolumeAttachment

	chosen map[string]choice // by the name of the volume
}

// choice is a volume that was chosen for a claim of placed pods.
type choice struct {
	claim string // key of the claim
	pods  int
}

func newStorage() Storage {
	return Storage{Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		Classes: map[string]*storagev1.StorageClass{}, Nodes: map[string]*storagev1.CSINode{},
		Drivers: map[string]*storagev1.CSIDriver{}, Capacities: map[string]*storagev1.CSIStorageCapacity{},
		Attachments: map[string]map[string]*storagev1.VolumeAttachment{}, chosen: map[string]choice{}}
}

// Free reports whether a volume is neither bound to, nor chosen for, another claim.
func (s *Storage) Free(v *corev1.PersistentVolume, pvc *corev1.PersistentVolumeClaim) bool {
	if v.Spec.ClaimRef != nil {
		return claim.IsFor(v, pvc)
	}
	c, chosen := s.chosen[v.Name]
	return !chosen || c.claim == follow.KeyOf(pvc).String()
}

// Choose replaces the volumes that were chosen for the open claims of a placed pod. No other claim gets them while the
// pod is placed.
func (c *Cluster) Choose(p *Pod, volumes map[string]string) {
	if c.pods[p.UID] != p || maps.Equal(p.Volumes, volumes) {
		return
	}
	c.Generation++
	c.Storage.choose(p, -1)
	p.Volumes = volumes
	c.Storage.choose(p, 1)
}

func (s *Storage) choose(p *Pod, pods int) {
	for name, key := range p.Volumes {
		now := choice{claim: key, pods: s.chosen[name].pods + pods}
		set(s.chosen, name, now, now.pods > 0)
	}
}

// Set records a change of an object of one of the kinds of Storage; nil: the object was deleted. It returns the kind of
// the change, 0 if it helps no pod, and the object's key.
func (c *Cluster) Set(was, is client.Object) (ChangeKind, string) {
	c.Generation++
	obj := is
	if obj == nil {
		obj = was
	}
	switch obj := obj.(type) {
	case *corev1.PersistentVolumeClaim:
		key := follow.KeyOf(obj).String()
		set(c.Storage.Claims, key, obj, is != nil)
		return Claims, key
	case *corev1.PersistentVolume:
		set(c.Storage.Volumes, obj.Name, obj, is != nil)
		return Volumes, obj.Name
	case *storagev1.StorageClass:
		set(c.Storage.Classes, obj.Name, obj, is != nil)
		return Classes, obj.Name
	case *storagev1.CSINode:
		set(c.Storage.Nodes, obj.Name, obj, is != nil)
		return CSINodes, obj.Name
	case *storagev1.CSIDriver:
		set(c.Storage.Drivers, obj.Name, obj, is != nil)
		return CSIDrivers, obj.Name
	case *storagev1.CSIStorageCapacity:
		set(c.Storage.Capacities, follow.KeyOf(obj).String(), obj, is != nil)
		old, _ := was.(*storagev1.CSIStorageCapacity)
		if is != nil && larger(old, obj) {
			return MoreCapacity, obj.Name
		}
	case *storagev1.VolumeAttachment:
		node := obj.Spec.NodeName
		if c.Storage.Attachments[node] == nil {
			c.Storage.Attachments[node] = map[string]*storagev1.VolumeAttachment{}
		}
		set(c.Storage.Attachments[node], obj.Name, obj, is != nil)
		if is == nil {
			return Detached, obj.Name
		}
	}
	return 0, ""
}

// larger reports whether a volume fits into a capacity that did not fit before; was may be nil.
func larger(was, is *storagev1.CSIStorageCapacity) bool {
	now := MaxVolume(is)
	if now == nil || was == nil {
		return now != nil
	}
	before := MaxVolume(was)
	return before == nil || now.Cmp(*before) > 0
}

// MaxVolume returns the size of the largest volume for which there is room; nil: none can be created.
func MaxVolume(c *storagev1.CSIStorageCapacity) *resource.Quantity {
	if c.MaximumVolumeSize != nil {
		return c.MaximumVolumeSize
	}
	return c.Capacity
}

func set[T any](all map[string]T, key string, obj T, exists bool) {
	if exists {
		all[key] = obj
	} else {
		delete(all, key)
	}
}
