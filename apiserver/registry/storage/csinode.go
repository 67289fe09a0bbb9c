package storage

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// maxNodeID is the maximum length of a driver's ID for a node, in bytes (CSI specification since 1.4).
const maxNodeID = 256

func csiNodeResource() kind.Resource {
	return kind.Resource{
		GVR:      client.CSINodes,
		Kind:     "CSINode",
		New:      func() kind.Object { return new(storagev1.CSINode) },
		Prepare:  csiNodePrepare,
		Validate: csiNodeValidate,
		Columns: []table.Column{
			table.Name(),
			table.Number("Drivers", "Number of drivers of the node.",
				func(n *storagev1.CSINode) int64 { return int64(len(n.Spec.Drivers)) }),
			table.Age(),
		},
	}
}

// csiNodePrepare drops the status: the feature gate CSIVolumeHealth is off.
func csiNodePrepare(next, _ kind.Object, subresource string) {
	if subresource == "" {
		next.(*storagev1.CSINode).Status = storagev1.CSINodeStatus{}
	}
}

// csiNodeValidate allows an update to add and remove drivers. Only allocatable of an existing driver can change.
func csiNodeValidate(next, cur kind.Object, _ string) field.ErrorList {
	node, at := next.(*storagev1.CSINode), field.NewPath("spec", "drivers")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range node.Spec.Drivers {
		d, path := &node.Spec.Drivers[i], at.Index(i)
		errs = append(errs, check.DriverName(d.Name, path.Child("name"))...)
		errs = append(errs, check.Required(path.Child("nodeID"), d.NodeID)...)
		if len(d.NodeID) > maxNodeID {
			errs = append(errs,
				field.Invalid(path.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", maxNodeID)))
		}
		if d.Allocatable != nil {
			errs = append(errs, check.NilOrNonNegative(path.Child("allocatable", "count"), d.Allocatable.Count)...)
		}
		errs = append(errs, check.Unique(path.Child("name"), d.Name, seen)...)
		errs = append(errs, topologyKeys(d.TopologyKeys, path)...)
	}
	was := map[string]storagev1.CSINodeDriver{}
	if cur != nil {
		for _, d := range cur.(*storagev1.CSINode).Spec.Drivers {
			was[d.Name] = d
		}
	}
	for _, d := range node.Spec.Drivers {
		before, ok := was[d.Name]
		before.Allocatable = d.Allocatable
		if ok && !equality.Semantic.DeepEqual(d, before) {
			errs = append(errs, field.Invalid(at, d, "field is immutable"))
		}
	}
	return errs
}

// topologyKeys checks that the keys are unique qualified names. Errors have the path of the driver.
func topologyKeys(keys []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, check.Required(at, key)...)
		if slices.Contains(keys[:i], key) {
			errs = append(errs, field.Duplicate(at, key))
		}
		errs = append(errs, check.Invalid(at, key, validation.IsQualifiedName(key))...)
	}
	return errs
}

func csiStorageCapacityResource() kind.Resource {
	type capacity = storagev1.CSIStorageCapacity
	return kind.Resource{
		GVR:        client.CSIStorageCapacities,
		Kind:       "CSIStorageCapacity",
		Namespaced: true,
		New:        func() kind.Object { return new(capacity) },
		Validate:   csiCapacityValidate,
		Columns: []table.Column{
			table.Name(),
			table.Text("StorageClassName", "The StorageClass.", func(c *capacity) string { return c.StorageClassName }),
			table.Text("Capacity", "Available capacity.", func(c *capacity) string {
				if c.Capacity == nil {
					return table.Unset
				}
				return c.Capacity.String()
			}),
		},
	}
}

func csiCapacityValidate(next, cur kind.Object, _ string) field.ErrorList {
	c := next.(*storagev1.CSIStorageCapacity)
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	errs := slices.Concat(
		check.LabelSelector(topology, c.NodeTopology),
		check.Invalid(class, c.StorageClassName, check.Subdomain(c.StorageClassName)),
		notNegative(c.Capacity, field.NewPath("capacity")),
		notNegative(c.MaximumVolumeSize, field.NewPath("maximumVolumeSize")),
	)
	if cur == nil {
		return errs
	}
	old := cur.(*storagev1.CSIStorageCapacity)
	errs = append(errs, check.Immutable(topology, c.NodeTopology, old.NodeTopology)...)
	return append(errs, check.Immutable(class, c.StorageClassName, old.StorageClassName)...)
}
