package rules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/dynamic-resource-allocation/structured"

	"monopod/controllers/scheduler/cluster"
)

const dynamicResources = "DynamicResources"

// The messages are upstream's.
const (
	whyDevices   = "cannot allocate all claims"
	whyDevicesOf = "resourceclaim not available on the node"
	whySlow      = "timed out trying to allocate devices"
)

// searchTime limits the search for devices on one node (upstream: DynamicResourcesArgs.FilterTimeout of 10 s, for
// several nodes concurrently; here other pods wait meanwhile).
const searchTime = 2 * time.Second

// deviceState contains the requirements of a pod's ResourceClaims.
type deviceState struct {
	all       Refusal // for every node
	uncreated bool    // all is set because the claim of a template does not exist yet
	claims    []*resourcev1.ResourceClaim
	open      []*resourcev1.ResourceClaim // claims without an allocation
	unusable  []*resourcev1.ResourceClaim // claims whose devices do not become ready
	// specials contains claims for the pod's extended resources, by the resources; a nil value means that there is nothing
	// to claim.
	specials  map[string]*extendedClaim
	stale     []*resourcev1.ResourceClaim // claims that an extendedClaim replaces
	places    []*nodeaffinity.NodeSelector
	allocator structured.Allocator
	found     map[string][]resourcev1.AllocationResult // allocations of open and the extendedClaim, by node
}

// deviceState returns the state, or nil for a pod without claims.
func (c *Cycle) deviceState() *deviceState {
	if c.devices == nil && (len(c.Pod.Spec.ResourceClaims) > 0 || c.extended()) {
		c.devices = &deviceState{}
		if err := c.devices.compute(c); err != nil {
			c.devices.all = refuseFinally(err.Error())
		}
	}
	return c.devices
}

// compute returns the reason why no node fits, or nil.
func (s *deviceState) compute(c *Cycle) error {
	for i := range c.Pod.Spec.ResourceClaims {
		entry := &c.Pod.Spec.ResourceClaims[i]
		name, owned, err := resourceclaim.Name(c.Pod.Pod, entry)
		if errors.Is(err, resourceclaim.ErrClaimNotFound) {
			s.uncreated = true
			return fmt.Errorf("waiting for resource claim controller to create the resourceclaim for pod claim %q", entry.Name)
		}
		if err != nil {
			return err
		}
		if name == nil {
			continue // the pod needs no claim
		}
		if err := s.add(c, *name, owned); err != nil {
			return err
		}
	}
	if c.extended() {
		if err := s.addExtended(c); err != nil {
			return err
		}
	}
	if len(s.open) == 0 && s.specials == nil {
		return nil
	}
	var err error
	s.found = map[string][]resourcev1.AllocationResult{}
	s.allocator, err = c.Devices.Allocator(context.Background())
	return err
}

// add adds one claim to the state.
func (s *deviceState) add(c *Cycle, name string, owned bool) error {
	claim := c.Devices.Claims[c.Pod.Namespace+"/"+name]
	switch {
	case claim == nil:
		return fmt.Errorf("resourceclaim.resource.k8s.io %q not found", name)
	case claim.DeletionTimestamp != nil:
		return fmt.Errorf("resourceclaim %q is being deleted", name)
	case c.Devices.AllocationAssumed(claim.UID):
		return fmt.Errorf("resource claim %s is in the process of being allocated", name)
	case len(claim.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize &&
		!resourceclaim.IsReservedForPod(c.Pod.Pod, claim, false):
		return fmt.Errorf("resourceclaim %q is reserved for %d pods, which is the limit", name, len(claim.Status.ReservedFor))
	}
	if owned {
		if err := resourceclaim.IsForPod(c.Pod.Pod, claim, false); err != nil {
			return err
		}
	}
	if slices.Contains(s.claims, claim) {
		return nil
	}
	s.claims = append(s.claims, claim)
	if a := claim.Status.Allocation; a != nil {
		if ready, err := cluster.Ready(claim); err != nil || !ready && c.Devices.Overdue(claim) {
			s.unusable = append(s.unusable, claim)
		}
		if a.NodeSelector == nil {
			return nil
		}
		place, err := nodeaffinity.NewNodeSelector(a.NodeSelector)
		s.places = append(s.places, place)
		return err
	}
	s.open = append(s.open, claim)
	return classesExist(c, claim)
}

func classesExist(c *Cycle, claim *resourcev1.ResourceClaim) error {
	exists := func(request, class string) error {
		if c.Devices.Classes[class] == nil {
			return fmt.Errorf("request %s: device class %s does not exist", request, class)
		}
		return nil
	}
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		if r.Exactly != nil {
			if err := exists(r.Name, r.Exactly.DeviceClassName); err != nil {
				return err
			}
		}
		for _, sub := range r.FirstAvailable {
			if err := exists(r.Name+"/"+sub.Name, sub.DeviceClassName); err != nil {
				return err
			}
		}
	}
	return nil
}

func unusableDevices(c *Cycle) (map[string]bool, Refusal) {
	if s := c.deviceState(); s != nil {
		return nil, s.all
	}
	return nil, Refusal{}
}

// devices refuses nodes that cannot access the pod's allocated devices, or lack devices for its open claims.
func devices(c *Cycle, n *cluster.Node) Refusal {
	s := c.deviceState()
	if s == nil {
		return Refusal{}
	}
	if len(s.unusable) > 0 ||
		slices.ContainsFunc(s.places, func(place *nodeaffinity.NodeSelector) bool { return !place.Match(n.Node) }) {
		return refuseFinally(whyDevicesOf)
	}
	open := s.open
	if extra := s.special(c, n); extra != nil {
		open = append(slices.Clip(open), extra.claim)
	}
	if len(open) == 0 {
		return Refusal{}
	}
	ctx, cancel := context.WithTimeout(context.Background(), searchTime)
	defer cancel()
	found, err := s.allocator.Allocate(ctx, n.Node, open)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return refuseFinally(whySlow)
	case err != nil:
		return refuseFinally(err.Error())
	case len(found) != len(open):
		return refuseFinally(whyDevices)
	}
	s.found[n.Name] = found
	return Refusal{}
}

// Reservation describes the writes to a claim before its pod is bound.
type Reservation struct {
	*resourcev1.ResourceClaim
	Allocation *resourcev1.AllocationResult // nil: the claim has an allocation

	// Mappings and Stale belong to a new claim for extended resources: the containers that use it, and the claims that it
	// replaces.
	Mappings []corev1.ContainerExtendedResourceRequest
	Stale    []*resourcev1.ResourceClaim
}

// Reservations returns the reservations of the pod's claims that are not reserved for the pod, on a node that fits.
func (c *Cycle) Reservations(n *cluster.Node) (out []Reservation) {
	s := c.deviceState()
	if s == nil {
		return nil
	}
	for _, claim := range s.claims {
		r := Reservation{ResourceClaim: claim}
		if i := slices.Index(s.open, claim); i >= 0 {
			r.Allocation = &s.found[n.Name][i]
		}
		if r.Allocation != nil || !resourceclaim.IsReservedForPod(c.Pod.Pod, claim, false) {
			out = append(out, r)
		}
	}
	if extra := s.special(c, n); extra != nil {
		out = append(out,
			Reservation{ResourceClaim: extra.claim, Allocation: &s.found[n.Name][len(s.open)], Mappings: extra.mappings,
				Stale: s.stale})
	}
	return out
}

// Conditional reports whether the pod waits for binding conditions of devices, and returns the keys of its existing
// claims. all contains the reservations on the node.
func (c *Cycle) Conditional(all []Reservation) (keys []string, waits bool) {
	s := c.deviceState()
	if s == nil {
		return nil, false
	}
	waits = slices.ContainsFunc(all, func(r Reservation) bool { return cluster.Conditional(r.Allocation) })
	for _, claim := range s.claims {
		waits = waits || cluster.Conditional(claim.Status.Allocation)
		keys = append(keys, claim.Namespace+"/"+claim.Name)
	}
	return keys, waits
}

// AwaitsClaimCreation reports whether the pod waits only for a claim that is about to be created from a template.
func (c *Cycle) AwaitsClaimCreation() bool {
	s := c.deviceState()
	return s != nil && s.uncreated
}

// Deallocatable returns an allocated claim that only this pod uses, after the pod was refused because of its devices:
// deallocating the claim lets the pod use devices elsewhere. It returns nil if there is none.
func (ch *Chooser) Deallocatable(c *Cycle, out *Outcome) *resourcev1.ResourceClaim {
	s := c.deviceState()
	if s == nil || s.all.Refused() ||
		out.Rejected&(1<<slices.IndexFunc(ch.Rules, func(r Rule) bool { return r.Name == dynamicResources })) == 0 {
		return nil
	}
	for _, claim := range slices.Concat(s.unusable, s.claims) {
		users := claim.Status.ReservedFor
		if claim.Status.Allocation != nil && (len(users) == 0 || len(users) == 1 && users[0].UID == c.Pod.UID) {
			return claim
		}
	}
	return nil
}

// devicesChanged is a Hint: a change of a claim helps if the pod uses the claim, or if the change released devices.
func devicesChanged(all *cluster.Cluster, p *cluster.Pod, ch cluster.Change) bool {
	if ch.ChangeKind&^cluster.ResourceClaims != 0 {
		return true
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil && p.Namespace+"/"+st.ResourceClaimName == ch.Name {
		return true
	}
	return slices.ContainsFunc(p.Spec.ResourceClaims, func(entry corev1.PodResourceClaim) bool {
		name, _, err := resourceclaim.Name(p.Pod, &entry)
		return err == nil && name != nil && p.Namespace+"/"+*name == ch.Name
	})
}
