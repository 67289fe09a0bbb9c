package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/controllers/podstate"
)

// Devices contains the state that allocations of devices depend on: ResourceClaims by namespace/name, other objects by
// name.
type Devices struct {
	Claims  map[string]*resourcev1.ResourceClaim
	Slices  map[string]*resourcev1.ResourceSlice
	Classes map[string]*resourcev1.DeviceClass
	Rules   map[string]*resourcev1.DeviceTaintRule

	Now time.Time // time of the decision

	provides map[corev1.ResourceName]*resourcev1.DeviceClass // by extended resource
	// assumed contains allocations, by the claim's UID, that are decided but not visible in the API yet.
	assumed   map[types.UID]*resourcev1.AllocationResult
	selectors *cel.Cache // nil until a pod requests devices
}

func newDevices() Devices {
	return Devices{Claims: map[string]*resourcev1.ResourceClaim{}, Slices: map[string]*resourcev1.ResourceSlice{},
		Classes: map[string]*resourcev1.DeviceClass{}, Rules: map[string]*resourcev1.DeviceTaintRule{},
		assumed: map[types.UID]*resourcev1.AllocationResult{}}
}

// Features are upstream's optional features that are stable or enabled by default.
var Features = structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true,
	DeviceTaints: true, ConsumableCapacity: true, DeviceBindingAndStatus: true, FractionalCapacityRange: true}

// index finds the DeviceClasses that provide extended resources: by the name in their spec, of which the newest class
// counts, and by the implicit name with a prefix.
func (d *Devices) index() {
	d.provides = map[corev1.ResourceName]*resourcev1.DeviceClass{}
	for _, class := range d.Classes {
		d.provides[corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+class.Name)] = class
		if class.Spec.ExtendedResourceName == nil {
			continue
		}
		name := corev1.ResourceName(*class.Spec.ExtendedResourceName)
		if other := d.provides[name]; other == nil || cmp.Or(
			class.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(other.Name, class.Name)) > 0 {
			d.provides[name] = class
		}
	}
}

// Class returns the DeviceClass that provides an extended resource, or nil.
func (d *Devices) Class(resource corev1.ResourceName) *resourcev1.DeviceClass {
	return d.provides[resource]
}

// SetDevices records a change of an object of one of the kinds of Devices; nil: the object was deleted. It returns the
// kind of the change and the key of a ResourceClaim.
func (c *Cluster) SetDevices(was, is client.Object) (ChangeKind, string) {
	c.Generation++
	obj := is
	if obj == nil {
		obj = was
	}
	switch obj := obj.(type) {
	case *resourcev1.ResourceClaim:
		key := follow.KeyOf(obj).String()
		set(c.Devices.Claims, key, obj, is != nil)
		if is == nil || obj.Status.Allocation != nil {
			delete(c.Devices.assumed, obj.UID)
		}
		old, _ := was.(*resourcev1.ResourceClaim)
		if old != nil && old.Status.Allocation != nil && (is == nil || obj.Status.Allocation == nil) {
			return ResourceClaims | DevicesFreed, key
		}
		return ResourceClaims, key
	case *resourcev1.ResourceSlice:
		set(c.Devices.Slices, obj.Name, obj, is != nil)
	case *resourcev1.DeviceClass:
		set(c.Devices.Classes, obj.Name, obj, is != nil)
		c.Devices.index()
	case *resourcev1.DeviceTaintRule:
		set(c.Devices.Rules, obj.Name, obj, is != nil)
	}
	return DevicesOffered, ""
}

// AssumeAllocation records the allocation that is being written for a claim; nil: it was not written.
func (c *Cluster) AssumeAllocation(claim types.UID, result *resourcev1.AllocationResult) {
	c.Generation++
	if result == nil {
		delete(c.Devices.assumed, claim)
		return
	}
	c.Devices.assumed[claim] = result
}

// AllocationAssumed reports whether an allocation of the claim is being written.
func (d *Devices) AllocationAssumed(claim types.UID) bool { return d.assumed[claim] != nil }

// Allocator returns an allocator of the devices that are not allocated.
func (d *Devices) Allocator(ctx context.Context) (structured.Allocator, error) {
	all := make([]*resourcev1.ResourceSlice, 0, len(d.Slices))
	// Sorted, because the allocator takes the first fitting devices.
	for _, name := range slices.Sorted(maps.Keys(d.Slices)) {
		all = append(all, d.tainted(d.Slices[name]))
	}
	if d.selectors == nil {
		d.selectors = cel.NewCache(maxSelectors, cel.Features{EnableConsumableCapacity: Features.ConsumableCapacity})
	}
	return structured.NewAllocator(ctx, Features, d.allocated(), classes(d.Classes), all, d.selectors)
}

// tainted returns a slice with the taints that DeviceTaintRules add to its devices.
func (d *Devices) tainted(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	out := slice
	for _, name := range slices.Sorted(maps.Keys(d.Rules)) {
		rule := d.Rules[name]
		for i := range slice.Spec.Devices {
			if !podstate.Taints(rule, slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name) {
				continue
			}
			if out == slice { // the slice and its devices are shared
				clone := *slice
				clone.Spec.Devices = slices.Clone(slice.Spec.Devices)
				out = &clone
			}
			device := &out.Spec.Devices[i]
			device.Taints = append(slices.Clip(device.Taints), rule.Spec.Taint)
		}
	}
	return out
}

// maxSelectors is the maximum number of cached compiled selectors (upstream: 10).
const maxSelectors = 10

// allocated returns the allocated devices.
func (d *Devices) allocated() structured.AllocatedState {
	t := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection()}
	for _, claim := range d.Claims {
		addAllocation(&t, claim.Status.Allocation)
	}
	for _, result := range d.assumed {
		addAllocation(&t, result)
	}
	return t
}

// addAllocation adds an allocation. It ignores administrative access, which shares devices with their users. For a
// shared device it adds the consumed capacity.
func addAllocation(t *structured.AllocatedState, a *resourcev1.AllocationResult) {
	if a == nil {
		return
	}
	for i := range a.Devices.Results {
		r := &a.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			t.AllocatedDevices.Insert(id)
			continue
		}
		t.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		if r.ConsumedCapacity != nil {
			t.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
		}
	}
}

// classes implements upstream's lister.
type classes map[string]*resourcev1.DeviceClass

// List implements structured.DeviceClassLister.
func (c classes) List() ([]*resourcev1.DeviceClass, error) {
	all := make([]*resourcev1.DeviceClass, 0, len(c))
	for _, class := range c {
		all = append(all, class)
	}
	return all, nil
}

// Get implements structured.DeviceClassLister.
func (c classes) Get(name string) (*resourcev1.DeviceClass, error) {
	if class := c[name]; class != nil {
		return class, nil
	}
	return nil, apierrors.NewNotFound(client.DeviceClasses.GroupResource(), name)
}
