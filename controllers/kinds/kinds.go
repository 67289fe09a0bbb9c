// Package kinds is the table of served kinds for the controllers that work on
// objects of any kind: garbagecollector and namespace.
package kinds

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
)

// Kind is one served kind.
type Kind struct {
	Resource   schema.GroupVersionResource
	Kind       string
	Namespaced bool
}

// GroupKind is the kind with its group: versions of it are one and the same.
func (k Kind) GroupKind() schema.GroupKind {
	return schema.GroupKind{Group: k.Resource.Group, Kind: k.Kind}
}

// Served are the kinds that package client names.
func Served() []Kind {
	return []Kind{
		{client.Pods, "Pod", true},
		{client.ReplicaSets, "ReplicaSet", true},
		{client.ConfigMaps, "ConfigMap", true},
		{client.Secrets, "Secret", true},
		{client.ServiceAccounts, "ServiceAccount", true},
		{client.Leases, "Lease", true},
		{client.Events, "Event", true},
		{client.Nodes, "Node", false},
		{client.Namespaces, "Namespace", false},
		{client.PriorityClasses, "PriorityClass", false},
		{client.Roles, "Role", true},
		{client.RoleBindings, "RoleBinding", true},
		{client.ClusterRoles, "ClusterRole", false},
		{client.ClusterRoleBindings, "ClusterRoleBinding", false},
		{client.PersistentVolumeClaims, "PersistentVolumeClaim", true},
		{client.CSIStorageCapacities, "CSIStorageCapacity", true},
		{client.LimitRanges, "LimitRange", true},
		{client.ResourceQuotas, "ResourceQuota", true},
		{client.PersistentVolumes, "PersistentVolume", false},
		{client.StorageClasses, "StorageClass", false},
		{client.CSIDrivers, "CSIDriver", false},
		{client.CSINodes, "CSINode", false},
		{client.VolumeAttachments, "VolumeAttachment", false},
		{client.VolumeAttributesClasses, "VolumeAttributesClass", false},
		{client.RuntimeClasses, "RuntimeClass", false},
	}
}
