package cluster

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/follow"
)

// Storage is what decides where a pod's volumes can be: claims by namespace/name, all else by name.
type Storage struct {
	Claims  map[string]*corev1.PersistentVolumeClaim
	Volumes map[string]*corev1.PersistentVolume
	Classes map[string]*storagev1.StorageClass
	Nodes   map[string]*storagev1.CSINode
}

func newStorage() Storage {
	return Storage{Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
		Classes: map[string]*storagev1.StorageClass{}, Nodes: map[string]*storagev1.CSINode{}}
}

// Set records a change of one of the kinds of Storage; is nil: the object is gone. It returns the kind of the change
// and the object's key.
func (c *Cluster) Set(was, is client.Object) (What, string) {
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
	}
	return 0, ""
}

func set[T any](all map[string]T, key string, obj T, exists bool) {
	if exists {
		all[key] = obj
	} else {
		delete(all, key)
	}
}
