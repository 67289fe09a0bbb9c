package sliceset

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Plan contains the changes to the slices of an owner.
type Plan struct {
	Create, Delete []*discoveryv1.EndpointSlice
	// Update contains slices with new contents, and the resourceVersion of the slices that they replace.
	Update    []*discoveryv1.EndpointSlice
	Unchanged []*discoveryv1.EndpointSlice

	Added, Updated, Removed int // numbers of endpoints
}

// Options of a Plan.
type Options struct {
	Max int // maximum number of endpoints in a slice
	// KeepHints means that the groups contain no hints: slices without other changes keep theirs.
	KeepHints bool
}

// Make plans the changes from the existing slices to the groups, which have different keys.
func Make(o Owner, existing []*discoveryv1.EndpointSlice, groups []Group, opts Options) Plan {
	var p Plan
	byKey := make(map[key][]*discoveryv1.EndpointSlice, len(groups))
	for _, g := range groups {
		byKey[keyOf(g.Family, g.Ports)] = nil
	}
	for _, slice := range slices.SortedFunc(slices.Values(existing), func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Compare(a.Name, b.Name)
	}) {
		k := keyOf(slice.AddressType, slice.Ports)
		if _, wanted := byKey[k]; wanted && o.owns(slice) {
			byKey[k] = append(byKey[k], slice)
			continue
		}
		p.Delete = append(p.Delete, slice)
		p.Removed += len(slice.Endpoints)
	}
	for _, g := range groups {
		same := byKey[keyOf(g.Family, g.Ports)]
		if len(g.Endpoints) == 0 {
			p.empty(o, g, same)
			continue
		}
		p.pack(o, g, same, opts)
	}
	// One update replaces a creation and a deletion, if the owner and the address type are the same.
	p.Create = slices.DeleteFunc(p.Create, func(next *discoveryv1.EndpointSlice) bool {
		i := slices.IndexFunc(p.Delete, func(old *discoveryv1.EndpointSlice) bool {
			return old.AddressType == next.AddressType && o.owns(old)
		})
		if i < 0 {
			return false
		}
		p.Update = append(p.Update, o.updated(p.Delete[i], next.Ports, next.Endpoints))
		p.Delete = slices.Delete(p.Delete, i, i+1)
		return true
	})
	return p
}

// empty keeps or creates one slice without endpoints.
func (p *Plan) empty(o Owner, g Group, existing []*discoveryv1.EndpointSlice) {
	placed := false
	for _, slice := range existing {
		switch {
		case placed || len(slice.Endpoints) > 0:
			p.Delete = append(p.Delete, slice)
			p.Removed += len(slice.Endpoints)
		case o.current(slice):
			p.Unchanged, placed = append(p.Unchanged, slice), true
		default:
			p.Update, placed = append(p.Update, o.updated(slice, g.Ports, []discoveryv1.Endpoint{})), true
		}
	}
	if !placed {
		p.Create = append(p.Create, o.slice(g, []discoveryv1.Endpoint{}))
	}
}

// pack distributes the endpoints of a group. Endpoints stay in their slices. New ones go into slices that change
// anyway, the fullest first, then into the slice that they fill best, then into new slices.
func (p *Plan) pack(o Owner, g Group, existing []*discoveryv1.EndpointSlice, opts Options) {
	wanted := make(map[identity]*discoveryv1.Endpoint, len(g.Endpoints))
	for i := range g.Endpoints {
		wanted[identityOf(&g.Endpoints[i])] = &g.Endpoints[i]
	}
	var unchanged, update []*discoveryv1.EndpointSlice
	for _, slice := range existing {
		kept, changed := p.keep(slice, wanted, opts)
		switch {
		case len(kept) == 0:
			p.Delete = append(p.Delete, slice)
		case changed || !o.current(slice):
			update = append(update, o.updated(slice, g.Ports, kept))
		default:
			unchanged = append(unchanged, slice)
		}
	}
	var rest []discoveryv1.Endpoint // those that no slice has, in a fixed order
	for _, id := range slices.SortedFunc(maps.Keys(wanted), identity.compare) {
		rest = append(rest, *wanted[id])
	}
	p.Added += len(rest)
	slices.SortStableFunc(update,
		func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
	for _, slice := range update {
		rest = fill(slice, rest, opts.Max)
	}
	for len(rest) > 0 {
		if i := bestFit(unchanged, len(rest), opts.Max); i >= 0 {
			slice := o.updated(unchanged[i], g.Ports, slices.Clone(unchanged[i].Endpoints))
			unchanged = slices.Delete(unchanged, i, i+1)
			rest = fill(slice, rest, opts.Max)
			update = append(update, slice)
			continue
		}
		slice := o.slice(g, nil)
		rest = fill(slice, rest, opts.Max)
		p.Create = append(p.Create, slice)
	}
	p.Update, p.Unchanged = append(p.Update, update...), append(p.Unchanged, unchanged...)
}

// keep moves the endpoints of a slice from wanted to the result, with their new state. changed reports whether an
// endpoint of the slice is missing or has changed.
func (p *Plan) keep(slice *discoveryv1.EndpointSlice, wanted map[identity]*discoveryv1.Endpoint,
	opts Options) (kept []discoveryv1.Endpoint, changed bool) {
	kept = make([]discoveryv1.Endpoint, 0, len(slice.Endpoints))
	for i := range slice.Endpoints {
		old := &slice.Endpoints[i]
		id := identityOf(old)
		next := wanted[id]
		if next == nil {
			p.Removed++
			changed = true
			continue
		}
		delete(wanted, id)
		kept = append(kept, *next)
		if !sameState(old, next, opts.KeepHints) {
			p.Updated++
			changed = true
		}
	}
	return kept, changed
}

// sameState compares the fields that identity does not contain, except a reference's resourceVersion.
func sameState(a, b *discoveryv1.Endpoint, anyHints bool) bool {
	if ptr.Deref(a.NodeName, "") != ptr.Deref(b.NodeName, "") || ptr.Deref(a.Zone, "") != ptr.Deref(b.Zone, "") ||
		!sameFlag(a.Conditions.Ready, b.Conditions.Ready) || !sameFlag(a.Conditions.Serving, b.Conditions.Serving) ||
		!sameFlag(a.Conditions.Terminating, b.Conditions.Terminating) || (a.TargetRef == nil) != (b.TargetRef == nil) {
		return false
	}
	if a.TargetRef != nil {
		x, y := *a.TargetRef, *b.TargetRef
		x.ResourceVersion, y.ResourceVersion = "", ""
		if x != y {
			return false
		}
	}
	return anyHints || a.Hints == nil && b.Hints == nil || equality.Semantic.DeepEqual(a.Hints, b.Hints)
}

func sameFlag(a, b *bool) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// fill adds endpoints to a slice and returns those for which it has no room.
func fill(slice *discoveryv1.EndpointSlice, rest []discoveryv1.Endpoint, limit int) []discoveryv1.Endpoint {
	n := min(len(rest), max(0, limit-len(slice.Endpoints)))
	slice.Endpoints = append(slice.Endpoints, rest[:n]...)
	return rest[n:]
}

// bestFit returns the index of the fullest slice with room for n more endpoints, or -1.
func bestFit(all []*discoveryv1.EndpointSlice, n, limit int) int {
	best, free := -1, limit
	for i, slice := range all {
		if left := limit - len(slice.Endpoints) - n; left >= 0 && left < free {
			best, free = i, left
		}
	}
	return best
}

// Touch moves unchanged slices for which change returns true to Update, as copies whose endpoints may be modified.
func (p *Plan) Touch(change func(*discoveryv1.EndpointSlice) bool) {
	p.Unchanged = slices.DeleteFunc(p.Unchanged, func(slice *discoveryv1.EndpointSlice) bool {
		if !change(slice) {
			return false
		}
		next := *slice
		next.Annotations, next.Endpoints = maps.Clone(slice.Annotations), slices.Clone(slice.Endpoints)
		p.Update = append(p.Update, &next)
		return true
	})
}
