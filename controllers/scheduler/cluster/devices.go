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

// Devices is what decides which devices pods get: resource claims by namespace/name, all else by name.
type Devices struct {
	Claims  map[string]*resourcev1.ResourceClaim
	Slices  map[string]*resourcev1.ResourceSlice
	Classes map[string]*resourcev1.DeviceClass
	Rules   map[string]*resourcev1.DeviceTaintRule

	Now time.Time // of the decision

	provides map[corev1.ResourceName]*resourcev1.DeviceClass // the class that provides an extended resource
	// pending are the allocations of claims, by UID, that are decided but that the API does not yet show.
	pending   map[types.UID]*resourcev1.AllocationResult
	selectors *cel.Cache // nil: no pod has asked for devices
}

func newDevices() Devices {
	return Devices{Claims: map[string]*resourcev1.ResourceClaim{}, Slices: map[string]*resourcev1.ResourceSlice{},
		Classes: map[string]*resourcev1.DeviceClass{}, Rules: map[string]*resourcev1.DeviceTaintRule{}, pending: map[types.UID]*resourcev1.AllocationResult{}}
}

// Features are what is allocated of upstream's optional parts: those that are stable or on by default.
var Features = structured.Features{AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, ConsumableCapacity: true,
	DeviceBindingAndStatus: true, FractionalCapacityRange: true}

// index finds the classes that provide extended resources: under the name in their spec, of which the newest class
// counts, and under one made of their own name.
func (d *Devices) index() {
	d.provides = map[corev1.ResourceName]*resourcev1.DeviceClass{}
	for _, class := range d.Classes {
		d.provides[corev1.ResourceName(resourcev1.ResourceDeviceClassPrefix+class.Name)] = class
		if class.Spec.ExtendedResourceName == nil {
			continue
		}
		name := corev1.ResourceName(*class.Spec.ExtendedResourceName)
		if other := d.provides[name]; other == nil || cmp.Or(class.CreationTimestamp.Compare(other.CreationTimestamp.Time), cmp.Compare(other.Name, class.Name)) > 0 {
			d.provides[name] = class
		}
	}
}

// Class returns the class that provides an extended resource; nil: none.
func (d *Devices) Class(resource corev1.ResourceName) *resourcev1.DeviceClass {
	return d.provides[resource]
}

// SetDevices records a change of one of the kinds of Devices; is nil: the object is gone. It returns the kind of the
// change and the key of a resource claim.
func (c *Cluster) SetDevices(was, is client.Object) (What, string) {
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
			delete(c.Devices.pending, obj.UID)
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

// Pend records that a claim gets devices; nil: it gets none, after all.
func (c *Cluster) Pend(claim types.UID, result *resourcev1.AllocationResult) {
	c.Generation++
	if result == nil {
		delete(c.Devices.pending, claim)
		return
	}
	c.Devices.pending[claim] = result
}

// Pending reports whether the allocation of a claim is being written.
func (d *Devices) Pending(claim types.UID) bool { return d.pending[claim] != nil }

// Allocator chooses devices of any node for claims, among those that no claim has.
func (d *Devices) Allocator(ctx context.Context) (structured.Allocator, error) {
	all := make([]*resourcev1.ResourceSlice, 0, len(d.Slices))
	for _, name := range slices.Sorted(maps.Keys(d.Slices)) { // the first fitting devices are chosen
		all = append(all, d.tainted(d.Slices[name]))
	}
	if d.selectors == nil {
		d.selectors = cel.NewCache(maxSelectors, cel.Features{EnableConsumableCapacity: Features.ConsumableCapacity})
	}
	return structured.NewAllocator(ctx, Features, d.taken(), classes(d.Classes), all, d.selectors)
}

// tainted returns a slice with the taints that rules add to its devices.
func (d *Devices) tainted(slice *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	out := slice
	for _, name := range slices.Sorted(maps.Keys(d.Rules)) {
		rule := d.Rules[name]
		for i := range slice.Spec.Devices {
			if !podstate.Taints(rule, slice.Spec.Driver, slice.Spec.Pool.Name, slice.Spec.Devices[i].Name) {
				continue
			}
			if out == slice { // which is shared, as are its devices
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

// maxSelectors is the number of compiled selectors that are kept (upstream: 10).
const maxSelectors = 10

// taken are the devices that claims have.
func (d *Devices) taken() structured.AllocatedState {
	t := structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}
	for _, claim := range d.Claims {
		take(&t, claim.Status.Allocation)
	}
	for _, result := range d.pending {
		take(&t, result)
	}
	return t
}

// take counts an allocation. Administrators share devices with their users, and what shares a device takes a part of
// its capacity.
func take(t *structured.AllocatedState, a *resourcev1.AllocationResult) {
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

// classes is upstream's lister.
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
