package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"monopod/apiserver/follow"
)

// freePort is a port that nothing listens on.
func freePort(t *testing.T) int32 {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return int32(l.Addr().(*net.TCPAddr).Port)
}

func TestHealthChecks(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := NewHealth(ctx, nil, zap.NewNop())
	key := follow.Key{Namespace: "default", Name: "web"}
	port := freePort(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func() string {
		resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		if err != nil {
			return "closed"
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		if weight := resp.Header.Get("X-Load-Balancing-Endpoint-Weight"); !strings.Contains(string(body), `"localEndpoints":`+weight+`,`) {
			t.Errorf("weight %q of %s", weight, body)
		}
		return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(body)))
	}
	for _, step := range []struct {
		port  int32
		local int
		want  string
	}{
		{port, 0, `503 {"localEndpoints":0,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
		{port, 2, `200 {"localEndpoints":2,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
		{0, 2, "closed"},
		{port, 1, `200 {"localEndpoints":1,"service":{"name":"web","namespace":"default"},"serviceProxyHealthy":true}`},
	} {
		h.Set(key, step.port, step.local)
		if got := ask(); got != step.want {
			t.Errorf("port %d, %d endpoints: %q, want %q", step.port, step.local, got, step.want)
		}
	}
	cancel()
	h.Wait()
	if got := ask(); got != "closed" {
		t.Errorf("after the end: %q", got)
	}
}

// TestTerminatingEndpointsAreNotHealthy: load balancers leave a node whose endpoints all terminate, while what still comes
// reaches them.
func TestTerminatingEndpointsAreNotHealthy(t *testing.T) {
	t.Parallel()
	svc := service(func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal, 31000
	})
	slice := endpointSlices([]string{"10.0.0.1"})[0]
	slice.Endpoints = append(slice.Endpoints, on("there", "10.0.0.2"), at("10.0.0.3", new(false), new(true), new(true)))
	node := Node{Name: "here"}
	for _, want := range []int{1, 0} {
		eps := []*discoveryv1.EndpointSlice{slice}
		if got := localReady(svc, eps, corev1.IPv4Protocol, node.Name); got != want {
			t.Errorf("%d endpoints, want %d", got, want)
		}
		front := Frontend{Addr: anyAddress(corev1.IPv4Protocol), Protocol: unix.IPPROTO_TCP, Port: 30080}
		if to, _ := Of(svc, eps, corev1.IPv4Protocol, node).find(front); len(to.Endpoints) != 1 || !to.Endpoints[0].Local {
			t.Errorf("traffic goes to %v", to.Endpoints)
		}
		slice.Endpoints = slice.Endpoints[1:] // only the one that terminates is left on this node
	}
}
