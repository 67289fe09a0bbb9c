package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/pod"
	"monopod/agent/pod/containers"
	"monopod/agent/pod/images"
	"monopod/agent/pod/resize"
	"monopod/agent/pod/sandbox"
	"monopod/agent/pod/spec"
	"monopod/agent/pod/status"
	"monopod/agent/pod/volumes"
	"monopod/agent/pressure/evictor"
	"monopod/agent/runtime/inventory"
)

// newPodNode is what the pods of this node have in common.
func (a *Agent) newPodNode() *pod.Node {
	cluster := spec.Cluster{DNS: a.cfg.ClusterDNS, Domain: a.cfg.ClusterDomain}
	memory := a.capacity[corev1.ResourceMemory]
	n := &pod.Node{
		Client: a.Client, Runtime: a.Runtime, Clock: a.Clock, Log: a.log, Guard: a.guard,
		Inventory: a.inventory(), HostIPs: a.hostIPs, Allocatable: a.allocatable, Memory: memory.Value(), SyncFrequency: a.cfg.SyncFrequency,
		Images: images.Node{
			Client: a.Client, Runtime: a.Runtime, Puller: a.images, Clock: a.Clock, Guard: a.guard,
			Imported: a.preload.First, Changed: a.node.ImagesChanged, Lost: a.node.Poke,
		},
		Volumes: volumes.Node{
			Dir: a.podsDir(), Client: a.Client, Runtime: a.Runtime, Clock: a.Clock, Mounter: a.Mounter,
			Tokens: a.tokens, Claims: a.claims, Saw: a.metrics.mount,
		},
		Sandboxes: sandbox.Node{
			Client: a.Client, Runtime: a.Runtime, Clock: a.Clock, Users: a.users, Machine: a.cfg.Machine,
			Instance: a.cfg.Instance, Cluster: cluster, Resolv: a.resolv, Logs: a.logs.Pod,
		},
		Containers: containers.Node{
			Config: containers.Config{
				Instance: a.cfg.Instance, Domain: a.cfg.ClusterDomain, Server: a.cfg.Server, HostIPs: a.hostIPs, Memory: memory.Value(),
				PageSizes: a.pageSizes, SeccompDir: a.seccompDir(), SeccompDefault: a.cfg.Security.SeccompDefault, Machine: a.cfg.Machine,
			},
			Client: a.Client, Runtime: a.Runtime, Clock: a.Clock, Guard: a.guard, Caller: a.caller, Probes: a.probes,
			Logs: a.logs, Placement: a.placement,
			Started: func() { a.metrics.startedContainers.Inc(); a.rotate.Poke() }, Running: a.rotate.Poke,
		},
		Placement: a.placement, Statuses: a.status, Owners: &a.owners,
		Hooks: pod.Hooks{
			Event: a.event, Fits: a.fits, Turn: a.starts.Take, Flushed: a.Flushed, Unmounted: a.freeClaims, Unavailable: a.node.Poke,
			Readmit: func(ctx context.Context, p *pod.Pod) { a.desk.do(func() { a.readmit(ctx, p) }) },
			Stepped: a.metrics.stepped, Ran: a.metrics.ran,
		},
	}
	if a.cgroups != nil {
		n.Sandboxes.Cgroups = podCgroups{a}
	}
	return n
}

// fits says why the node cannot give pod, which has what had says, what it asks for:
// never, or not now.
func (a *Agent) fits(had, pod *corev1.Pod) *status.Resize {
	if why := a.placement.Infeasible(had, pod); why != "" {
		return resize.Infeasible(why)
	}
	return resize.Room(pod, a.activeBeside(pod), a.node.Current())
}

// inventory reads what the runtime has.
func (a *Agent) inventory() inventory.Reader {
	return inventory.Reader{Runtime: a.Runtime, Instance: a.cfg.Instance}
}

// podsOf are those that are still there.
func (a *Agent) podsOf(pods []evictor.Pod) (out []*pod.Pod) {
	for _, p := range pods {
		if p := a.pod(p.Object().UID); p != nil {
			out = append(out, p)
		}
	}
	return out
}

// evictable are all pods.
func (a *Agent) evictable() map[types.UID]evictor.Pod {
	out := map[types.UID]evictor.Pod{}
	for uid, p := range a.all() {
		out[uid] = p
	}
	return out
}

// shownImages are the images of all pods' volumes, by their full names.
func (a *Agent) shownImages() []string {
	var out []string
	for _, p := range a.all() {
		out = append(out, images.Named(p.Object())...)
	}
	return out
}

// imagesArrived tells the node and the pods of images that nobody pulled.
func (a *Agent) imagesArrived() {
	a.node.ImagesChanged()
	for _, p := range a.all() {
		p.ImagesArrived()
	}
}
