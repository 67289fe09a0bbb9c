package endpointslice

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/follow"
	"monopod/controllers/sliceset"
)

// overload is the share by which an endpoint's expected traffic may exceed the average (upstream's overloadThreshold).
const overload = 0.2

// topology assigns endpoints to zones in proportion to the CPUs of the zones' nodes, for Services with the annotation
// service.kubernetes.io/topology-mode. The algorithm and its limits are upstream's.
type topology struct {
	mu     sync.Mutex         // guards the fields below
	ratios map[string]float64 // share of the CPUs by zone; nil: unknown
	hinted map[follow.Key]map[discoveryv1.AddressType]map[string]int
}

// event is an Event about a Service.
type event struct{ typ, reason, message string }

func newTopology() *topology {
	return &topology{hinted: map[follow.Key]map[discoveryv1.AddressType]map[string]int{}}
}

// set records the nodes, and returns the Services whose hints no longer match them.
func (t *topology) set(all []node) []follow.Key {
	ratios := ratiosOf(all)
	t.mu.Lock()
	defer t.mu.Unlock()
	if maps.Equal(ratios, t.ratios) {
		return nil
	}
	t.ratios = ratios
	var out []follow.Key
	for key, families := range t.hinted {
		for _, byZone := range families {
			if overloaded(byZone, ratios) {
				out = append(out, key)
				break
			}
		}
	}
	return out
}

// ratiosOf returns each zone's share of the CPUs; nil if a node has no zone or CPUs, or there is only one zone.
func ratiosOf(all []node) map[string]float64 {
	byZone, total := map[string]int64{}, int64(0)
	for _, n := range all {
		if !n.counted {
			continue
		}
		if n.zone == "" || n.cpu == 0 {
			return nil
		}
		byZone[n.zone] += n.cpu
		total += n.cpu
	}
	if len(byZone) < 2 {
		return nil
	}
	ratios := map[string]float64{}
	for zone, cpu := range byZone {
		ratios[zone] = float64(cpu) / float64(total)
	}
	return ratios
}

// overloaded reports whether a zone has too few endpoints.
func overloaded(byZone map[string]int, ratios map[string]float64) bool {
	total := 0
	for _, n := range byZone {
		total += n
	}
	if total == 0 {
		return false
	}
	for zone, ratio := range ratios {
		if n, ok := byZone[zone]; !ok || n < least(ratio*float64(total)) {
			return true
		}
	}
	return len(ratios) == 0
}

// least returns the minimum number of endpoints of a zone for the desired number.
func least(desired float64) int { return int(math.Ceil(desired / (1 + overload))) }

// forget removes a Service.
func (t *topology) forget(key follow.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.hinted, key)
}

// hint sets the hints of the slices in a plan if auto is set, and returns the Events about that.
func (t *topology) hint(key follow.Key, s *corev1.Service, p *sliceset.Plan, auto bool) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !auto {
		var out []event
		for family := range t.hinted[key] {
			out = append(out, disabled("Topology Aware Hints has been disabled", family))
		}
		delete(t.hinted, key)
		return out
	}
	before := t.hinted[key]
	after := map[discoveryv1.AddressType]map[string]int{}
	var out []event
	for _, family := range s.Spec.IPFamilies {
		family := addressType(family)
		byZone, problem := t.assign(p, family)
		switch {
		case problem != "":
			clearHints(p, family)
			out = append(out, disabled(problem, family))
			continue
		case len(before) == 0:
			out = append(out,
				event{corev1.EventTypeNormal, "TopologyAwareHintsEnabled",
					withFamily("Topology Aware Hints has been enabled", family)})
		}
		after[family] = byZone
	}
	if t.hinted[key] = after; len(after) == 0 {
		delete(t.hinted, key)
	}
	return out
}

func disabled(why string, family discoveryv1.AddressType) event {
	return event{corev1.EventTypeWarning, "TopologyAwareHintsDisabled", withFamily(why, family)}
}

func withFamily(text string, family discoveryv1.AddressType) string {
	return fmt.Sprintf("%s, addressType: %s", text, family)
}

// clearHints removes the hints of all slices of a family.
func clearHints(p *sliceset.Plan, family discoveryv1.AddressType) {
	p.Touch(func(slice *discoveryv1.EndpointSlice) bool {
		return slice.AddressType == family &&
			slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
	})
	for _, slice := range written(p, family) {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hints = nil
		}
	}
}

// written returns the slices of a family that the plan writes.
func written(p *sliceset.Plan, family discoveryv1.AddressType) []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(slices.Concat(p.Create, p.Update),
		func(s *discoveryv1.EndpointSlice) bool { return s.AddressType != family })
}

// assign sets the hints of a family: an endpoint serves its own zone, or a zone with too few endpoints. It returns the
// number of endpoints for each zone, or the reason why there are no hints.
func (t *topology) assign(p *sliceset.Plan, family discoveryv1.AddressType) (map[string]int, string) {
	shares, problem := t.shares(readyEndpoints(p, family))
	if problem != "" {
		return nil, problem
	}
	byZone := map[string]int{}
	p.Touch(func(slice *discoveryv1.EndpointSlice) bool {
		return slice.AddressType == family && !counts(slice, byZone, shares)
	})
	all := written(p, family)
	for _, slice := range all {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			e.Hints = nil
			switch {
			case !ready(e):
				continue
			case e.Zone == nil || *e.Zone == "":
				return nil, "One or more endpoints do not have a zone specified"
			}
			byZone[*e.Zone]++
			e.Hints = forZone(*e.Zone)
		}
	}
	giving, receiving := balance(shares, byZone)
	redistribute(all, giving, receiving, byZone)
	if len(byZone) == 0 {
		return nil, "No hints allocated for zones"
	}
	return byZone, ""
}

// share is the number of endpoints for a zone.
type share struct {
	most    int
	desired float64
}

// shares divides n endpoints among the zones. The caller holds mu.
func (t *topology) shares(n int) (map[string]share, string) {
	switch {
	case t.ratios == nil:
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	case len(t.ratios) > n:
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", n, len(t.ratios))
	}
	left := n
	for _, ratio := range t.ratios {
		left -= least(ratio * float64(n))
	}
	if left < 0 {
		return nil, fmt.Sprintf(
			"Unable to allocate minimum required endpoints to each zone without exceeding overload threshold "+
				"(%d endpoints, %d zones)", n, len(t.ratios))
	}
	out := map[string]share{}
	for zone, ratio := range t.ratios {
		desired := ratio * float64(n)
		out[zone] = share{most: least(desired) + left, desired: max(desired, float64(least(desired)))}
	}
	return out, ""
}

// readyEndpoints counts the ready endpoints of a family after the plan.
func readyEndpoints(p *sliceset.Plan, family discoveryv1.AddressType) int {
	n := 0
	for _, slice := range slices.Concat(p.Create, p.Update, p.Unchanged) {
		for i := range slice.Endpoints {
			if slice.AddressType == family && ready(&slice.Endpoints[i]) {
				n++
			}
		}
	}
	return n
}

func ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready != nil && *e.Conditions.Ready }

func forZone(zone string) *discoveryv1.EndpointHints {
	return &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
}

// counts adds the hints of an unchanged slice to byZone. It returns false if the slice must change: an endpoint has no
// hint or one for a zone without a share, or a zone would get too many endpoints.
func counts(slice *discoveryv1.EndpointSlice, byZone map[string]int, shares map[string]share) bool {
	here := map[string]int{}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if !ready(e) {
			continue
		}
		if e.Hints == nil || len(e.Hints.ForZones) == 0 {
			return false
		}
		for _, z := range e.Hints.ForZones {
			here[z.Name]++
		}
	}
	for zone, n := range here {
		if s, ok := shares[zone]; !ok || byZone[zone]+n > s.most {
			return false
		}
	}
	for zone, n := range here {
		byZone[zone] += n
	}
	return true
}

// balance returns how many endpoints each zone has too many, and how many each has too few.
func balance(shares map[string]share, byZone map[string]int) (giving, receiving map[string]int) {
	surplus, lack := map[string]float64{}, map[string]float64{}
	for zone, s := range shares {
		surplus[zone], lack[zone] = float64(byZone[zone])-s.desired, s.desired-float64(byZone[zone])
	}
	giving, receiving = map[string]int{}, map[string]int{}
	for {
		from, gives := most(surplus)
		to, needs := most(lack)
		if from == "" || to == "" || gives < 1 && needs < 1 || gives < 0.5 || needs < 0.5 {
			return giving, receiving
		}
		giving[from]++
		surplus[from]--
		receiving[to]++
		lack[to]--
	}
}

// most returns the zone with the largest positive number; among equals the first by name.
func most(zones map[string]float64) (zone string, n float64) {
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		if zones[z] > n {
			zone, n = z, zones[z]
		}
	}
	return zone, n
}

// redistribute moves endpoints from zones with too many to zones with too few.
func redistribute(all []*discoveryv1.EndpointSlice, giving, receiving, byZone map[string]int) {
	order := slices.Sorted(maps.Keys(receiving))
	for _, slice := range all {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !ready(e) || giving[*e.Zone] == 0 {
				continue
			}
			to := slices.IndexFunc(order, func(zone string) bool { return receiving[zone] > 0 })
			if to < 0 {
				return
			}
			giving[*e.Zone]--
			receiving[order[to]]--
			byZone[*e.Zone]--
			byZone[order[to]]++
			e.Hints = forZone(order[to])
		}
	}
}
