package nodes

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a Machine in memory.
type machine struct {
	mu        sync.Mutex // guards what follows
	calls     []string
	plan      Plan
	watched   int
	noSupport bool // of WireGuard
	changes   chan struct{}
}

func (m *machine) call(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, text)
}

// Subnets implements Machine.
func (m *machine) Subnets(of []netip.Addr) (out []netip.Prefix, err error) {
	m.call("subnets")
	for _, ip := range of {
		out = append(out, netip.PrefixFrom(ip, 24))
	}
	return out, nil
}

// StartWireGuard implements Machine.
func (m *machine) StartWireGuard() (wgtypes.Key, error) {
	m.call("wireguard")
	if m.noSupport {
		return wgtypes.Key{}, ErrUnsupported
	}
	return keyOf("own"), nil
}

// StartVXLAN implements Machine.
func (m *machine) StartVXLAN(netip.Addr) (string, error) {
	m.call("vxlan")
	return "0a:59:00:00:00:01", nil
}

// Apply implements Machine.
func (m *machine) Apply(p Plan, _, _ bool) error {
	m.call("apply")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plan = p
	return nil
}

// Watch implements Machine.
func (m *machine) Watch(ctx context.Context) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched++
	out := make(chan struct{})
	go func() {
		defer close(out)
		for {
			select {
			case <-m.changes:
				out <- struct{}{}
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// take returns the calls since the last take, and the plan.
func (m *machine) take() (calls, plan string) {
	time.Sleep(10 * time.Second)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	calls = strings.Join(m.calls, " ")
	m.calls = nil
	return calls, strings.Join(m.plan.texts(), "; ")
}

// run runs a Nodes on the Node "own" of a new API.
func run(t *testing.T, m *machine, cfg Config) *registry.Registry {
	t.Helper()
	return runWith(t, m, cfg, zap.NewNop())
}

func runWith(t *testing.T, m *machine, cfg Config, log *zap.Logger) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	api := registry.New(s, resources, registry.Config{})
	metrics, err := follow.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cfg.Node, cfg.Port = "own", 51820
	cfg.Subnets = []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")}
	m.changes = make(chan struct{})
	n := New(follow.Deps{Client: api, Clock: clock.RealClock{}, Log: log, Metrics: metrics}, m, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	create(t, api, nodeWith("own", "cidr=10.88.0.0/24", "ip=192.168.1.1"))
	return api
}

func create(t *testing.T, api *registry.Registry, node *corev1.Node) {
	t.Helper()
	if _, err := api.Create(t.Context(), node); err != nil {
		t.Error(err)
	}
}

func annotationsOf(t *testing.T, api *registry.Registry) []string {
	t.Helper()
	node, err := client.Get[*corev1.Node](t.Context(), api, "", "own")
	if err != nil {
		t.Error(err)
		return nil
	}
	var out []string
	for name, value := range node.Annotations {
		out = append(out, strings.TrimPrefix(name, "monopod.io/")+"="+value)
	}
	slices.Sort(out)
	return out
}

func TestOneNodeHasNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, several := &machine{}, false
		api := run(t, m, Config{Several: func() { several = true }})
		if calls, plan := m.take(); strings.TrimSpace(strings.ReplaceAll(calls, "apply", "")) != "" || plan != "" {
			t.Errorf("calls %q, plan %q", calls, plan)
		}
		_, err := client.Update(t.Context(), api, nodeWith("own"), "status", func(n *corev1.Node) error {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			return nil
		})
		if calls, _ := m.take(); calls != "" || err != nil {
			t.Errorf("after a heartbeat: calls %q, %v", calls, err)
		}
		if m.watched > 0 || several || annotationsOf(t, api) != nil {
			t.Errorf("watches %d, several %v, annotations %v", m.watched, several, annotationsOf(t, api))
		}
	})
}

func TestNodesComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, several := &machine{}, false
		api := run(t, m, Config{Several: func() { several = true }})
		m.take()
		create(t, api, nodeWith("near", "cidr=10.88.1.0/24", "ip=192.168.1.2", "subnets=192.168.1.2/24"))
		_, plan := m.take()
		if plan != "route 10.88.1.0/24 via 192.168.1.2" || !several {
			t.Errorf("plan %q, several %v", plan, several)
		}
		if diff := cmp.Diff([]string{"node-subnets=192.168.1.1/24"}, annotationsOf(t, api)); diff != "" {
			t.Error(diff)
		}
		create(t, api, nodeWith("far", "cidr=10.88.2.0/24", "ip=10.0.0.2", "key=far", "endpoint=10.0.0.2:51820"))
		_, plan = m.take()
		if want := "route 10.88.1.0/24 via 192.168.1.2; route 10.88.2.0/24 wireguard; " +
			"peer far at 10.0.0.2:51820 [10.88.2.0/24]; overhead 80"; plan != want {
			t.Errorf("plan %q, want %q", plan, want)
		}
		want := []string{"node-subnets=192.168.1.1/24", "wireguard-endpoint=192.168.1.1:51820",
			"wireguard-public-key=" + keyOf("own").String()}
		if diff := cmp.Diff(want, annotationsOf(t, api)); diff != "" {
			t.Error(diff)
		}
		m.changes <- struct{}{} // for instance a link that went down and up again
		if calls, _ := m.take(); !strings.Contains(calls, "apply") {
			t.Errorf("a change of the machine's network caused the calls %q", calls)
		}
		for _, name := range []string{"near", "far"} {
			_, err := api.Delete(t.Context(), client.Ref{Resource: client.Nodes, Name: name}, metav1.DeleteOptions{})
			if err != nil {
				t.Error(err)
			}
		}
		if _, plan := m.take(); plan != "" || annotationsOf(t, api) != nil {
			t.Errorf("plan %q, annotations %v after the last other node", plan, annotationsOf(t, api))
		}
	})
}

func TestWithoutWireGuard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{noSupport: true}
		api := run(t, m, Config{})
		create(t, api, nodeWith("far", "cidr=10.88.2.0/24", "ip=10.0.0.2", "key=far", "mac=own"))
		_, plan := m.take()
		if want := "route 10.88.2.0/24 via 10.88.2.1 vxlan; neighbor 0a:59:80:fd:d3:92 at 10.0.0.2 [10.88.2.1]; " +
			"overhead 50"; plan != want {
			t.Errorf("plan %q, want %q", plan, want)
		}
		want := []string{"node-subnets=192.168.1.1/24", "vxlan-mac=0a:59:00:00:00:01"}
		if diff := cmp.Diff(want, annotationsOf(t, api)); diff != "" {
			t.Error(diff)
		}
	})
}

// The network of an administrator has its own routes.
func TestOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, cfg := range []Config{{Off: func() bool { return true }}, {Mode: None}} {
			m, several := &machine{}, false
			cfg.Several = func() { several = true }
			api := run(t, m, cfg)
			create(t, api, nodeWith("near", "cidr=10.88.1.0/24", "ip=192.168.1.2", "subnets=192.168.1.2/24"))
			if _, plan := m.take(); plan != "" || annotationsOf(t, api) != nil {
				t.Errorf("mode %q: plan %q, annotations %v", cfg.Mode, plan, annotationsOf(t, api))
			}
			if several != (cfg.Mode == None) {
				t.Errorf("mode %q: NetworkPolicies know about other nodes: %v", cfg.Mode, several)
			}
		}
	})
}

// The log says which nodes cannot be reached when they have had time to find a common way, and once.
func TestUnreachableNodesAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		m := &machine{noSupport: true}
		api := runWith(t, m, Config{Mode: ModeRoutes}, zap.New(core))
		create(t, api, nodeWith("far", "cidr=10.88.2.0/24", "ip=10.0.0.2"))
		m.take()
		if logs.Len() > 0 {
			t.Errorf("at once: %v", logs.All())
		}
		time.Sleep(time.Hour)
		m.take()
		if logs.Len() != 1 || logs.All()[0].ContextMap()["nodes"] != "far" {
			t.Errorf("after an hour: %v", logs.All())
		}
	})
}
