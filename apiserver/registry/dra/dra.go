// Package dra contains the kinds of dynamic resource allocation. Drivers publish devices, and claims request them. The
// scheduler allocates devices to claims, and the node's drivers prepare them.
package dra

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// controller creates claims of pods from templates, and releases claims.
const controller = "resourceclaim-controller"

type (
	claim       = resourcev1.ResourceClaim
	template    = resourcev1.ResourceClaimTemplate
	slice       = resourcev1.ResourceSlice
	deviceClass = resourcev1.DeviceClass
)

// Resources returns the kinds of this package, in the order of discovery.
func Resources() []kind.Resource {
	return []kind.Resource{
		{
			GVR: client.DeviceClasses, Kind: "DeviceClass",
			New: func() kind.Object { return new(deviceClass) },
			Prepare: kind.SpecOnly(func(obj kind.Object) *resourcev1.DeviceClassSpec { return &obj.(*deviceClass).Spec },
				nil),
			Validate: validateClass,
			Columns:  []table.Column{table.Name(), table.Age()},
		},
		taintRules(),
		{
			GVR: client.ResourceClaims, Kind: "ResourceClaim", Namespaced: true, Controller: controller,
			Subresources: kind.Parts("status"),
			New:          func() kind.Object { return new(claim) },
			Default:      func(obj kind.Object) { defaultSpec(&obj.(*claim).Spec) },
			Prepare:      prepareClaim,
			Validate:     validateClaim,
			Columns: []table.Column{table.Name(),
				table.Text("State", "Whether the claim is allocated, reserved or pending.", stateCell),
				table.Age()},
		}, {
			GVR: client.ResourceClaimTemplates, Kind: "ResourceClaimTemplate", Namespaced: true, Controller: controller,
			New:      func() kind.Object { return new(template) },
			Default:  func(obj kind.Object) { defaultSpec(&obj.(*template).Spec.Spec) },
			Validate: validateTemplate,
			Columns:  []table.Column{table.Name(), table.Age()},
		}, {
			GVR: client.ResourceSlices, Kind: "ResourceSlice",
			New:   func() kind.Object { return new(slice) },
			Stamp: stampSlice,
			Prepare: kind.SpecOnly(func(obj kind.Object) *resourcev1.ResourceSliceSpec { return &obj.(*slice).Spec },
				nil),
			Validate: validateSlice,
			Fields: func(obj kind.Object) fields.Set {
				s := obj.(*slice)
				return fields.Set{resourcev1.ResourceSliceSelectorNodeName: ptr.Deref(s.Spec.NodeName, ""),
					resourcev1.ResourceSliceSelectorDriver:   s.Spec.Driver,
					resourcev1.ResourceSliceSelectorPoolName: s.Spec.Pool.Name}
			},
			Columns: []table.Column{
				table.Name(),
				table.Text("Node", "The node of the devices.", func(s *slice) string { return table.OrUnset(s.Spec.NodeName) }),
				table.Text("Driver", "The driver that publishes the devices.", func(s *slice) string { return s.Spec.Driver }),
				table.Text("Pool", "The pool of the devices.", func(s *slice) string { return s.Spec.Pool.Name }),
				table.Age(),
			},
		},
	}
}

// prepareClaim keeps a write of the spec from changing the status, and vice versa. It keeps the time of an allocation.
func prepareClaim(next, cur kind.Object, subresource string) {
	restore := kind.WithoutGeneration(
		func(obj kind.Object) (*resourcev1.ResourceClaimSpec, *resourcev1.ResourceClaimStatus) {
			return &obj.(*claim).Spec, &obj.(*claim).Status
		})
	restore(next, cur, subresource)
	if subresource != "status" {
		return
	}
	is, was := next.(*claim).Status.Allocation, cur.(*claim).Status.Allocation
	if is != nil && was != nil && is.AllocationTimestamp == nil {
		is.AllocationTimestamp = was.AllocationTimestamp
	}
}

// stateCell returns the state of a claim as kubectl shows it.
func stateCell(c *claim) string {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	if c.Status.Allocation == nil {
		if c.DeletionTimestamp == nil {
			states = append(states, "pending")
		}
	} else {
		states = append(states, "allocated")
	}
	if len(c.Status.ReservedFor) > 0 {
		states = append(states, "reserved")
	}
	return strings.Join(states, ",")
}

// defaultSpec sets upstream's defaults: one device, and tolerations with the operator Equal.
func defaultSpec(spec *resourcev1.ResourceClaimSpec) {
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		if e := r.Exactly; e != nil {
			defaultRequest(&e.AllocationMode, &e.Count, e.Tolerations)
		}
		for j := range r.FirstAvailable {
			sub := &r.FirstAvailable[j]
			defaultRequest(&sub.AllocationMode, &sub.Count, sub.Tolerations)
		}
	}
}

func defaultRequest(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	kind.SetIfZero(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		kind.SetIfZero(count, 1)
	}
	for i := range tolerations {
		kind.SetIfZero(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// stampSlice sets the times of new taints.
func stampSlice(next, _ kind.Object, now metav1.Time) {
	s := next.(*slice)
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			stampTaint(&s.Spec.Devices[i].Taints[j], now)
		}
	}
}
