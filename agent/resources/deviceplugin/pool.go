package deviceplugin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"monopod/agent/podapi/status"
	"monopod/agent/resources/topology"
)

// device is a device of a plugin.
type device struct {
	healthy bool
	nodes   topology.Nodes // empty: unknown
}

// share contains a container's devices of one resource.
type share struct {
	ids  []string       // sorted
	near topology.Nodes // preferred NUMA nodes
	// response is the plugin's response to Allocate; nil: the plugin was not called yet.
	response *plugin.ContainerAllocateResponse
	// restored means that the share is from the checkpoint or a container's annotation, and that it is unknown whether the
	// devices still exist.
	restored bool
}

// shares contains the shares of a pod by container and resource.
type shares map[string]map[string]*share

// resource is an extended resource with its devices.
type resource struct {
	devices  map[string]device
	endpoint *endpoint     // nil: the plugin has disconnected, or has not registered since the start
	returned chan struct{} // closed when it returns; nil: it is present
	seen     bool          // a plugin has listed devices since the start; before, the health of devices is unknown
	expired  bool          // the plugin was away for longer than returnGrace
}

// pool contains the devices and their allocation.
type pool struct {
	resources map[string]*resource
	pods      map[types.UID]shares
}

func newPool() pool {
	return pool{resources: map[string]*resource{}, pods: map[types.UID]shares{}}
}

// free returns the healthy devices that are not allocated.
func (p *pool) free(name string) []string {
	taken := p.taken(name, "")
	var out []string
	for id, d := range p.resources[name].devices {
		if d.healthy && !taken[id] {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// taken returns the allocated devices of a resource, except those of one pod.
func (p *pool) taken(name string, but types.UID) map[string]bool {
	out := map[string]bool{}
	for uid, containers := range p.pods {
		for _, has := range containers {
			if s := has[name]; s != nil && uid != but {
				for _, id := range s.ids {
					out[id] = true
				}
			}
		}
	}
	return out
}

// reusable returns the devices of the pod's earlier init containers, which have ended
// when c starts, except those of containers that run together with c.
func (p *pool) reusable(pod *corev1.Pod, c *corev1.Container, name string) []string {
	has := p.pods[pod.UID]
	out := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		init := &pod.Spec.InitContainers[i]
		if init.Name == c.Name {
			break
		}
		for _, id := range has.of(init.Name, name) {
			out[id] = !status.Sidecar(init)
		}
	}
	for i := range pod.Spec.Containers {
		for _, id := range has.of(pod.Spec.Containers[i].Name, name) {
			delete(out, id)
		}
	}
	maps.DeleteFunc(out, func(_ string, reuse bool) bool { return !reuse })
	return slices.Sorted(maps.Keys(out))
}

func (s shares) of(container, resource string) []string {
	if mine := s[container][resource]; mine != nil {
		return mine.ids
	}
	return nil
}

// put records a container's share.
func (p *pool) put(uid types.UID, container, name string, s *share) {
	if p.pods[uid] == nil {
		p.pods[uid] = shares{}
	}
	if p.pods[uid][container] == nil {
		p.pods[uid][container] = map[string]*share{}
	}
	p.pods[uid][container][name] = s
}

// choose chooses c's devices of a resource: reusable ones first, then free ones. The messages are upstream's.
func (p *pool) choose(pod *corev1.Pod, c *corev1.Container, name string, count int,
	near topology.Nodes) (*share, error) {
	r := p.resources[name]
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.devices)), func(d device) bool { return d.healthy }) {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	reuse := p.reusable(pod, c, name)
	ids := slices.Clone(reuse[:min(count, len(reuse))])
	if needed, free := count-len(ids), p.free(name); needed > len(free) {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed,
			len(free))
	} else if needed > 0 {
		aligned, others := r.rank(free, near)
		ids = append(ids, append(aligned, others...)[:needed]...)
	}
	slices.Sort(ids)
	return &share{ids: ids, near: near}, nil
}

// rank splits devices into aligned ones, which are on the nodes, and others: first devices on other nodes, then devices
// without nodes.
func (r *resource) rank(ids []string, near topology.Nodes) (aligned, others []string) {
	var nowhere []string
	for _, id := range ids {
		switch nodes := r.devices[id].nodes; {
		case nodes == 0:
			nowhere = append(nowhere, id)
		case nodes&near != 0:
			aligned = append(aligned, id)
		default:
			others = append(others, id)
		}
	}
	return aligned, append(others, nowhere...)
}

// swap replaces devices by the plugin's preferred ones in all shares of the pod that
// are not allocated yet, because a later container may reuse them.
func (s shares) swap(name string, from, to []string) {
	in, out := without(to, from), without(from, to)
	for _, has := range s {
		mine := has[name]
		if mine == nil || mine.response != nil {
			continue
		}
		for i, id := range mine.ids {
			if at := slices.Index(out, id); at >= 0 {
				mine.ids[i] = in[at]
			}
		}
		slices.Sort(mine.ids)
	}
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return slices.Contains(b, id) })
}

// requested returns how many devices of each known resource a container requests from plugins. Devices that a resource
// claim provides do not count.
func (p *pool) requested(pod *corev1.Pod, c *corev1.Container) map[string]int {
	var out map[string]int
	for name, q := range c.Resources.Limits {
		if p.resources[string(name)] != nil && !q.IsZero() && !claimed(pod, string(name)) {
			if out == nil {
				out = map[string]int{}
			}
			out[string(name)] = int(q.Value())
		}
	}
	return out
}

// claimed reports whether a resource claim provides an extended resource of a pod.
func claimed(pod *corev1.Pod, name string) bool {
	st := pod.Status.ExtendedResourceClaimStatus
	return st != nil &&
		slices.ContainsFunc(st.RequestMappings,
			func(m corev1.ContainerExtendedResourceRequest) bool { return m.ResourceName == name })
}

// Extended reports whether the name is that of an extended resource, which plugins may offer: its domain is not
// Kubernetes' own.
func Extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
