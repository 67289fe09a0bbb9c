package sliceset

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// Index contains the slices that one controller manages, by their Service. It contains a slice as soon as the slice was
// written; the event of that write wakes nothing.
type Index struct {
	managedBy string

	mu      sync.Mutex // guards the fields below
	of      map[follow.Key]map[string]*discoveryv1.EndpointSlice
	writing map[follow.Key]map[string]int64 // revisions of events during the writes of a Service, by name
	// unseen contains the writes of this process whose events have not been received, by Service and name. A new watch may
	// never show a slice that was deleted meanwhile.
	unseen map[follow.Key]map[string]int64
}

// gone is the revision of a deletion.
const gone = -1

// NewIndex returns an empty Index of the slices with a value of the label endpointslice.kubernetes.io/managed-by.
func NewIndex(managedBy string) *Index {
	return &Index{managedBy: managedBy, of: map[follow.Key]map[string]*discoveryv1.EndpointSlice{},
		writing: map[follow.Key]map[string]int64{}, unseen: map[follow.Key]map[string]int64{}}
}

// Of returns the slices of a Service, in no order.
func (x *Index) Of(service follow.Key) []*discoveryv1.EndpointSlice {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Collect(maps.Values(x.of[service]))
}

// OnSlice records a change of a slice, and wakes its Service unless this process made the change.
func (x *Index) OnSlice(old, new client.Object) []follow.Key {
	x.mu.Lock()
	defer x.mu.Unlock()
	was, wasOurs := x.service(old)
	is, isOurs := x.service(new)
	var keys []follow.Key
	if wasOurs && (!isOurs || is != was) && x.remove(was, old) && x.foreign(was, old.GetName(), gone) {
		keys = append(keys, was)
	}
	if isOurs && x.unseen[is][new.GetName()] <= revision(new) {
		x.markSeen(is, new.GetName())
	}
	if isOurs && x.add(is, new.(*discoveryv1.EndpointSlice)) && x.foreign(is, new.GetName(), revision(new)) {
		keys = append(keys, is)
	}
	return keys
}

// service returns the Service of a slice that the controller manages.
func (x *Index) service(obj client.Object) (follow.Key, bool) {
	slice, _ := obj.(*discoveryv1.EndpointSlice)
	if slice == nil || slice.Labels[discoveryv1.LabelManagedBy] != x.managedBy {
		return follow.Key{}, false
	}
	name := slice.Labels[discoveryv1.LabelServiceName]
	return follow.Key{Namespace: slice.Namespace, Name: name}, name != ""
}

// add adds a slice. It returns false if the Index has this or a later state of the slice. The caller holds mu.
func (x *Index) add(service follow.Key, slice *discoveryv1.EndpointSlice) bool {
	set := x.of[service]
	if known := set[slice.Name]; known != nil && known.UID == slice.UID && revision(known) >= revision(slice) {
		return false
	}
	if set == nil {
		set = map[string]*discoveryv1.EndpointSlice{}
		x.of[service] = set
	}
	set[slice.Name] = slice
	return true
}

// remove removes a slice. It returns false if the Index does not contain the slice. The caller holds mu.
func (x *Index) remove(service follow.Key, slice client.Object) bool {
	set := x.of[service]
	if known := set[slice.GetName()]; known == nil || known.UID != slice.GetUID() {
		return false
	}
	if delete(set, slice.GetName()); len(set) == 0 {
		delete(x.of, service)
	}
	return true
}

// foreign reports whether a change wakes the Service. While the Service's slices are being written, endWrites decides
// that. The caller holds mu.
func (x *Index) foreign(service follow.Key, name string, revision int64) bool {
	seen, writing := x.writing[service]
	if writing {
		seen[name] = revision
	}
	return !writing
}

// beginWrites marks the start of the writes of a Service.
func (x *Index) beginWrites(service follow.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing[service] = map[string]int64{}
}

// endWrites marks the end of the writes of a Service, and reports whether other clients changed its slices meanwhile.
func (x *Index) endWrites(service follow.Key) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	others := len(x.writing[service]) > 0
	delete(x.writing, service)
	return others
}

// wrote records a slice that was created or updated.
func (x *Index) wrote(service follow.Key, slice *discoveryv1.EndpointSlice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.add(service, slice) {
		if x.unseen[service] == nil {
			x.unseen[service] = map[string]int64{}
		}
		x.unseen[service][slice.Name] = revision(slice)
	}
	if x.writing[service][slice.Name] == revision(slice) {
		delete(x.writing[service], slice.Name)
	}
}

// deleted records a slice that no longer exists.
func (x *Index) deleted(service follow.Key, slice *discoveryv1.EndpointSlice) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(service, slice)
	x.markSeen(service, slice.Name)
	delete(x.writing[service], slice.Name)
}

// markSeen records that the event of a write was received. The caller holds mu.
func (x *Index) markSeen(service follow.Key, name string) {
	if delete(x.unseen[service], name); len(x.unseen[service]) == 0 {
		delete(x.unseen, service)
	}
}

// waiting returns the slices of a Service whose writes the watch has not shown yet.
func (x *Index) waiting(service follow.Key) []*discoveryv1.EndpointSlice {
	x.mu.Lock()
	defer x.mu.Unlock()
	var out []*discoveryv1.EndpointSlice
	for name := range x.unseen[service] {
		if slice := x.of[service][name]; slice != nil {
			out = append(out, slice)
		}
	}
	return out
}

// revision returns the number of an object's resourceVersion.
func revision(obj client.Object) int64 {
	n, _ := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	return n
}
