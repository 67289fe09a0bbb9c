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

	"monopod/agent/pod/status"
	"monopod/agent/resources/topology"
)

// device is one that a plugin offers.
type device struct {
	healthy bool
	nodes   topology.Nodes // near which it is; none: it does not say
}

// share is what one container has of one resource.
type share struct {
	ids  []string       // in order
	near topology.Nodes // where its devices should lie
	// response is what the plugin says a container must be given; nil: it was not
	// asked yet.
	response *plugin.ContainerAllocateResponse
	// restored: it is from the checkpoint or from a container's annotation, and it is
	// not known yet whether the devices are still there.
	restored bool
}

// shares are by container and resource.
type shares map[string]map[string]*share

// resource is what is offered under one name.
type resource struct {
	devices  map[string]device
	endpoint *endpoint     // nil: the plugin went away, or was not there since the start
	back     chan struct{} // closed when it comes back; nil: it is there
	// seen reports whether a plugin was there since the start. Before, nothing is known of
	// the devices that containers have.
	seen    bool
	expired bool // the plugin has been away for too long
}

// pool is what there is, and who has it.
type pool struct {
	resources map[string]*resource
	pods      map[types.UID]shares
}

func newPool() pool {
	return pool{resources: map[string]*resource{}, pods: map[types.UID]shares{}}
}

// free are the devices that nobody has and that work.
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

// taken are the devices that pods have, but for one.
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

// reusable are the devices of the pod's earlier init containers, which have ended
// when c starts, and which no container has that runs beside c.
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

// put gives a container its share.
func (p *pool) put(uid types.UID, container, name string, s *share) {
	if p.pods[uid] == nil {
		p.pods[uid] = shares{}
	}
	if p.pods[uid][container] == nil {
		p.pods[uid][container] = map[string]*share{}
	}
	p.pods[uid][container][name] = s
}

// choose picks what c gets of a resource: of what it may reuse first, then of
// what is free. The messages are upstream's, which people search for.
func (p *pool) choose(pod *corev1.Pod, c *corev1.Container, name string, count int, near topology.Nodes) (*share, error) {
	r := p.resources[name]
	if !slices.ContainsFunc(slices.Collect(maps.Values(r.devices)), func(d device) bool { return d.healthy }) {
		return nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	}
	reuse := p.reusable(pod, c, name)
	ids := slices.Clone(reuse[:min(count, len(reuse))])
	if needed, free := count-len(ids), p.free(name); needed > len(free) {
		return nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, needed, len(free))
	} else if needed > 0 {
		aligned, others := r.rank(free, near)
		ids = append(ids, append(aligned, others...)[:needed]...)
	}
	slices.Sort(ids)
	return &share{ids: ids, near: near}, nil
}

// rank parts ids into those that lie near the nodes and the others: those that lie
// elsewhere before those that do not say where.
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

// swap replaces devices that a plugin would rather not give, in all shares of the
// pod that it was not asked about yet: a later container may reuse them.
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

// without are those of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(id string) bool { return slices.Contains(b, id) })
}

// asks is how many devices of each known resource a container wants.
func (p *pool) asks(c *corev1.Container) map[string]int {
	var out map[string]int
	for name, q := range c.Resources.Limits {
		if p.resources[string(name)] != nil && !q.IsZero() {
			if out == nil {
				out = map[string]int{}
			}
			out[string(name)] = int(q.Value())
		}
	}
	return out
}

// Extended reports whether a plugin may offer devices under the name: it has a
// domain that is not Kubernetes' own.
func Extended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") &&
		!strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+name)) == 0
}
