package placement

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	podstatus "monopod/agent/podapi/status"
	"monopod/agent/resources/plugins"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/guard"
)

// Rate limit and burst of requests (upstream's values).
const (
	queriesPerSecond = 100
	burst            = 10
)

// Device is a device of a resource.
type Device struct {
	Resource, ID string
	Nodes        topology.Nodes // its NUMA nodes; none: unknown
}

// Memory is memory or huge pages on NUMA nodes.
type Memory struct {
	Type  string // memory or hugepages-…
	Bytes uint64
	Nodes topology.Nodes
}

// Share contains the exclusive resources of a container, or the allocatable resources of the node.
type Share struct {
	Devices []Device
	CPUs    []int
	Memory  []Memory
}

// Source provides the allocations for the podresources API.
type Source interface {
	// Pods returns the pods that hold resources.
	Pods() []*corev1.Pod
	Container(uid types.UID, name string) Share
	// Dynamic returns the devices of a container's resource claims.
	Dynamic(pod *corev1.Pod, c *corev1.Container) []*api.DynamicResource
	Allocatable() Share
}

// server implements the podresources API.
type server struct {
	api.UnimplementedPodResourcesListerServer
	source  Source
	limit   *rate.Limiter
	metrics *metrics
}

// newServer creates the server and registers its metrics.
func newServer(source Source, r prometheus.Registerer) (*server, error) {
	m, err := newMetrics(r)
	return &server{source: source, limit: rate.NewLimiter(queriesPerSecond, burst), metrics: m}, err
}

// Run serves on the socket at path until ctx ends.
func (s *server) Run(ctx context.Context, path string, g *guard.Guard) error {
	l, err := plugins.Listen(path)
	if err != nil {
		return err
	}
	return plugins.Serve(ctx, l, g, "podresources",
		func(r grpc.ServiceRegistrar) { api.RegisterPodResourcesListerServer(r, s) })
}

// allowed counts a request, and rejects it above the rate limit.
func (s *server) allowed(of counters) error {
	s.metrics.total.WithLabelValues(version).Inc()
	of.requests.WithLabelValues(version).Inc()
	if !s.limit.Allow() {
		of.errors.WithLabelValues(version).Inc()
		return status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return nil
}

// List returns the resources of the containers of all pods.
func (s *server) List(context.Context, *api.ListPodResourcesRequest) (*api.ListPodResourcesResponse, error) {
	if err := s.allowed(s.metrics.list); err != nil {
		return nil, err
	}
	out := &api.ListPodResourcesResponse{}
	for _, pod := range s.source.Pods() {
		out.PodResources = append(out.PodResources, s.pod(pod))
	}
	return out, nil
}

// Get returns the resources of the containers of a pod.
func (s *server) Get(_ context.Context, req *api.GetPodResourcesRequest) (*api.GetPodResourcesResponse, error) {
	if err := s.allowed(s.metrics.get); err != nil {
		return nil, err
	}
	for _, pod := range s.source.Pods() {
		if pod.Name == req.PodName && pod.Namespace == req.PodNamespace {
			return &api.GetPodResourcesResponse{PodResources: s.pod(pod)}, nil
		}
	}
	s.metrics.get.errors.WithLabelValues(version).Inc()
	return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found", req.PodName, req.PodNamespace)
}

// GetAllocatableResources returns the allocatable resources, allocated or not.
func (s *server) GetAllocatableResources(context.Context,
	*api.AllocatableResourcesRequest) (*api.AllocatableResourcesResponse, error) {
	if err := s.allowed(s.metrics.allocatable); err != nil {
		return nil, err
	}
	all := s.source.Allocatable()
	return &api.AllocatableResourcesResponse{Devices: devices(all.Devices), CpuIds: cpus(all.CPUs),
		Memory: memory(all.Memory)}, nil
}

// pod returns the resources of the pod's containers and sidecars.
func (s *server) pod(pod *corev1.Pod) *api.PodResources {
	out := &api.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *corev1.Container) {
		has := s.source.Container(pod.UID, c.Name)
		out.Containers = append(out.Containers, &api.ContainerResources{
			Name: c.Name, Devices: devices(has.Devices), CpuIds: cpus(has.CPUs), Memory: memory(has.Memory),
			DynamicResources: s.source.Dynamic(pod, c),
		})
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podstatus.Sidecar(c) {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

func devices(list []Device) []*api.ContainerDevices {
	var out []*api.ContainerDevices
	for _, d := range list {
		out = append(out, &api.ContainerDevices{
			ResourceName: d.Resource, DeviceIds: []string{d.ID}, Topology: nodes(d.Nodes)})
	}
	return out
}

func memory(list []Memory) []*api.ContainerMemory {
	var out []*api.ContainerMemory
	for _, m := range list {
		out = append(out, &api.ContainerMemory{MemoryType: m.Type, Size: m.Bytes, Topology: nodes(m.Nodes)})
	}
	return out
}

func nodes(set topology.Nodes) *api.TopologyInfo {
	if set == 0 {
		return nil
	}
	out := &api.TopologyInfo{}
	for _, id := range set.IDs() {
		out.Nodes = append(out.Nodes, &api.NUMANode{ID: int64(id)})
	}
	return out
}

func cpus(ids []int) []int64 {
	var out []int64
	for _, id := range ids {
		out = append(out, int64(id))
	}
	return out
}
