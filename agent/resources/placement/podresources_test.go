package placement

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"

	"monopod/agent/resources/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a node with two pods.
type node struct{}

func (node) Pods() []*corev1.Pod {
	side := corev1.Container{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	return []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default", UID: "p"},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "rich", Namespace: "apps", UID: "r"}, Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "before"}, side}, Containers: []corev1.Container{{Name: "c"}}}},
	}
}

func (node) Container(uid types.UID, name string) Share {
	if uid == "r" && name == "c" {
		return Share{
			Devices: []Device{{"a.io/d", "d1", topology.NewNodes(0, 1)}, {"a.io/d", "d2", 0}},
			CPUs:    []int{2, 3}, Memory: []Memory{{"memory", 1 << 30, topology.NewNodes(1)}},
		}
	}
	return Share{}
}

func (node) Dynamic(pod *corev1.Pod, c *corev1.Container) []*api.DynamicResource {
	if pod.Name != "rich" || c.Name != "c" {
		return nil
	}
	return []*api.DynamicResource{{ClaimName: "gpu", ClaimNamespace: pod.Namespace,
		ClaimResources: []*api.ClaimResource{{DriverName: "d.io", PoolName: "p", DeviceName: "g"}}}}
}

func (node) Allocatable() Share {
	return Share{Devices: []Device{{"a.io/d", "d1", 0}}, CPUs: []int{1, 2, 3}}
}

// rich is the pod rich in the JSON form of a response.
const rich = `{"name":"rich","namespace":"apps","containers":[{"name":"side"},{"name":"c","devices":[
	{"resourceName":"a.io/d","deviceIds":["d1"],"topology":{"nodes":[{},{"ID":"1"}]}},{"resourceName":"a.io/d","deviceIds":["d2"]}],
	"cpuIds":["2","3"],"memory":[{"memoryType":"memory","size":"1073741824","topology":{"nodes":[{"ID":"1"}]}}],
	"dynamicResources":[{"claimName":"gpu","claimNamespace":"apps","claimResources":[{"driverName":"d.io","poolName":"p","deviceName":"g"}]}]}]}`

func TestAPI(t *testing.T) {
	t.Parallel()
	c, metrics := serve(t)
	check(t, `{"podResources":[{"name":"plain","namespace":"default","containers":[{"name":"c"}]},`+rich+`]}`,
		&api.ListPodResourcesResponse{}, func() (proto.Message, error) {
			return c.List(t.Context(), &api.ListPodResourcesRequest{})
		})
	check(t, `{"podResources":`+rich+`}`, &api.GetPodResourcesResponse{}, func() (proto.Message, error) {
		return c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "rich", PodNamespace: "apps"})
	})
	check(t, `{"devices":[{"resourceName":"a.io/d","deviceIds":["d1"]}],"cpuIds":["1","2","3"]}`,
		&api.AllocatableResourcesResponse{}, func() (proto.Message, error) {
			return c.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
		})
	_, err := c.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "rich", PodNamespace: "default"})
	if status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "pod rich in namespace default not found") {
		t.Errorf("Get of a pod that does not exist: %v", err)
	}
	for name, want := range map[string]float64{"errors_get": 1, "requests_get": 2, "requests_list": 1,
		"requests_total": 4} {
		if got := count(t, metrics, "kubelet_pod_resources_endpoint_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// count returns the sum of a counter.
func count(t *testing.T, r *prometheus.Registry, name string) float64 {
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				sum += m.Counter.GetValue()
			}
		}
	}
	return sum
}

func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	c, _ := serve(t)
	for range 10000 {
		_, err := c.List(t.Context(), &api.ListPodResourcesRequest{})
		if err == nil {
			continue
		}
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "rejected by rate limit") {
			t.Fatal(err)
		}
		return
	}
	t.Error("no request was rejected")
}

// serve returns a client of a running server.
func serve(t *testing.T) (api.PodResourcesListerClient, *prometheus.Registry) {
	dir, err := os.MkdirTemp("", "mpr") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	s, err := newServer(node{}, metrics)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubelet.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, path, nil) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	return api.NewPodResourcesListerClient(conn), metrics
}

// check compares a response with its JSON.
func check(t *testing.T, text string, want proto.Message, call func() (proto.Message, error)) {
	t.Helper()
	got, err := call()
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal([]byte(text), want); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("unexpected response (-want +got): %s", cmp.Diff(protojson.Format(want), protojson.Format(got)))
	}
}
