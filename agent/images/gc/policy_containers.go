package gc

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/podapi/status"
)

// Pod is the state of one pod.
type Pod struct {
	UID      types.UID
	Observed *status.Observed
	Over     bool // it has ended: no container restarts, and its status is stored
	All      bool // every dead container and sandbox may be removed
}

// Container is a dead container of a pod.
type Container struct {
	Pod types.UID
	*status.Container
	needed bool // the pod's status, or its next start, depends on it
}

// containerKey identifies a container of a pod, of which there may be several instances.
type containerKey struct {
	pod  types.UID
	name string
}

// Containers returns the dead containers to remove. The last instance of a container
// stays as long as its pod exists, regardless of limits: without it the container's
// exit would be unknown, and it would be started again.
func (p *Policy) Containers(pods []Pod, now time.Time) []Container {
	var out []Container
	candidates := map[containerKey][]Container{} // newest first
	for i := range pods {
		for _, c := range pods[i].dead(now.Add(-p.MinContainerAge)) {
			if pods[i].All {
				out = append(out, c)
				continue
			}
			u := containerKey{c.Pod, c.Name}
			candidates[u] = append(candidates[u], c)
		}
	}
	if p.PerContainer >= 0 {
		out = append(out, trim(candidates, p.PerContainer)...)
	}
	if p.MaxContainers >= 0 && count(candidates) > p.MaxContainers {
		// Upstream's share: the same for each container, and at least one.
		out = append(out, trim(candidates, max(1, p.MaxContainers/len(candidates)))...)
		out = append(out, oldest(candidates, count(candidates)-p.MaxContainers)...)
	}
	return out
}

// dead returns the pod's containers that ended before a time, newest first. A
// container that was never started is dead once there is a newer one.
func (p *Pod) dead(before time.Time) []Container {
	newest := map[string]*status.Container{}
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		if n := newest[c.Name]; n == nil || byAge(c, n) > 0 {
			newest[c.Name] = c
		}
	}
	var out []Container
	for i := range p.Observed.Containers {
		c := &p.Observed.Containers[i]
		last := newest[c.Name] == c
		if (c.State == status.Exited || c.State == status.Created && (!last || p.All)) && !c.FinishedAt.After(before) {
			out = append(out, Container{Pod: p.UID, Container: c, needed: last && !p.Over})
		}
	}
	slices.SortFunc(out, func(a, b Container) int { return byAge(b.Container, a.Container) })
	return out
}

func byAge(a, b *status.Container) int {
	return cmp.Or(cmp.Compare(a.Attempt, b.Attempt), a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// trim removes all but the newest n instances of each container from the candidates, and returns them.
func trim(candidates map[containerKey][]Container, n int) []Container {
	var out []Container
	for u, list := range candidates {
		keep := min(n, len(list))
		if keep == 0 && list[0].needed {
			keep = 1
		}
		out = append(out, list[keep:]...)
		if candidates[u] = list[:keep]; keep == 0 {
			delete(candidates, u)
		}
	}
	return out
}

// oldest returns the n containers that ended first. It omits containers that are needed.
func oldest(candidates map[containerKey][]Container, n int) []Container {
	var all []Container
	for _, list := range candidates {
		all = append(all, slices.DeleteFunc(slices.Clone(list), func(c Container) bool { return c.needed })...)
	}
	slices.SortFunc(all, func(a, b Container) int {
		return cmp.Or(a.FinishedAt.Compare(b.FinishedAt), cmp.Compare(a.ID, b.ID))
	})
	return all[:min(len(all), max(0, n))]
}

func count(candidates map[containerKey][]Container) (n int) {
	for _, list := range candidates {
		n += len(list)
	}
	return n
}

// Sandboxes returns the dead sandboxes of a pod that have no containers. It omits the newest sandbox, from whose
// attempt number the next one follows, unless All is set.
func Sandboxes(p Pod) []string {
	holds := map[string]bool{}
	for i := range p.Observed.Containers {
		holds[p.Observed.Containers[i].SandboxID] = true
	}
	newest := p.Observed.Sandbox()
	var out []string
	for i := range p.Observed.Sandboxes {
		s := &p.Observed.Sandboxes[i]
		if !s.Ready && !holds[s.ID] && (p.All || s != newest) {
			out = append(out, s.ID)
		}
	}
	return out
}
