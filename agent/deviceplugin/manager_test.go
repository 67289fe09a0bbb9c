package deviceplugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/clock"

	"monopod/agent/topology"
	"monopod/testdata/deviceplugin/plugin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const res = "example.com/dev"

// sockets are Unix sockets in memory, which a bubble of time knows.
type sockets struct {
	mu    sync.Mutex // guards paths
	paths map[string]*bufconn.Listener
}

func (s *sockets) listen(path string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := bufconn.Listen(1 << 16)
	s.paths[path] = l
	return l, nil
}

func (s *sockets) dial(ctx context.Context, path string) (net.Conn, error) {
	s.mu.Lock()
	l := s.paths[path]
	s.mu.Unlock()
	if l == nil {
		return nil, errors.New("nobody listens")
	}
	return l.DialContext(ctx)
}

// bench is a Manager with plugins, in a bubble of time.
type bench struct {
	*testing.T
	*Manager
	dir     string
	sockets *sockets
	stop    func()

	mu      sync.Mutex // guards changed
	changed [][]types.UID
}

func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, dir: t.TempDir(), sockets: &sockets{paths: map[string]*bufconn.Listener{}}}
		b.start()
		t.Cleanup(func() { b.stop() })
		test(b)
	})
}

// start runs a Manager over the same folder.
func (b *bench) start() {
	b.Helper()
	m, err := New(Config{
		Dir: b.dir, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Nodes: topology.NewNodes(0, 1),
		Listen: b.sockets.listen, Dial: b.sockets.dial,
		Changed: func(pods []types.UID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.changed = append(b.changed, pods)
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Manager = m
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	synctest.Wait()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

func (b *bench) restart() {
	b.stop()
	b.start()
}

// plug starts a plugin and returns it and what ends it.
func (b *bench) plug(cfg plugin.Config) (p *plugin.Plugin, pull func()) {
	b.Helper()
	cfg.Dir, cfg.Listen, cfg.Dial = b.dir, b.sockets.listen, b.sockets.dial
	if cfg.Name == "" {
		cfg.Name = "dev.sock"
	}
	if cfg.Resource == "" {
		cfg.Resource = res
	}
	p = plugin.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx) }()
	synctest.Wait()
	pull = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
		synctest.Wait()
	})
	b.Cleanup(pull)
	return p, pull
}

// has checks the node's capacity and allocatable devices.
func (b *bench) has(capacity, allocatable int64) {
	b.Helper()
	synctest.Wait()
	c, a := b.Capacity()
	if got := c[res]; got.Value() != capacity {
		b.Errorf("capacity is %v, not %d", &got, capacity)
	}
	if got := a[res]; got.Value() != allocatable {
		b.Errorf("allocatable is %v, not %d", &got, allocatable)
	}
}

// asking is a pod whose containers want so many devices each.
func asking(uid types.UID, counts ...int64) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid)}}
	for i, n := range counts {
		p.Spec.Containers = append(p.Spec.Containers, wanting(string(rune('a'+i)), n))
	}
	return p
}

func wanting(name string, n int64) corev1.Container {
	list := corev1.ResourceList{res: *apiresource.NewQuantity(n, apiresource.DecimalSI)}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: list, Requests: list}}
}

// admit lets a pod in as the agent does.
func (b *bench) admit(pod *corev1.Pod, near ...int) error {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if err := b.Allocate(b.Context(), pod, &list[i], topology.Hint{Nodes: topology.NewNodes(near...)}); err != nil {
				return err
			}
		}
	}
	return b.Prepare(b.Context(), pod)
}

func (b *bench) mustAdmit(pod *corev1.Pod, near ...int) {
	b.Helper()
	if err := b.admit(pod, near...); err != nil {
		b.Fatal(err)
	}
}

// ids are the devices of a container, as its environment names them.
func (b *bench) ids(pod *corev1.Pod, container string) string {
	b.Helper()
	a, err := b.Allotment(b.Context(), pod, &corev1.Container{Name: container})
	if err != nil {
		b.Fatal(err)
	}
	for _, v := range a.Envs {
		if v.Name == "TESTDEV" {
			return v.Value
		}
	}
	return ""
}

func TestDevicesComeAndGo(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		b.has(2, 2)
		pod := asking("u1", 1)
		b.mustAdmit(pod)
		sick := plugin.Devices("d1", "d2")
		sick[0].Health = api.Unhealthy
		p.Set(sick)
		b.has(2, 1)
		want := map[string][]corev1.ResourceStatus{"a": {{Name: res, Resources: []corev1.ResourceHealth{{ResourceID: "d1", Health: corev1.ResourceHealthStatusUnhealthy}}}}}
		if got := b.Health("u1"); !cmp.Equal(got, want) {
			t.Errorf("health: %s", cmp.Diff(want, got))
		}
		b.mu.Lock()
		if last := b.changed[len(b.changed)-1]; !slices.Equal(last, []types.UID{"u1"}) {
			t.Errorf("told of %v", last)
		}
		b.mu.Unlock()
		p.Set(plugin.Devices("d1", "d2", "d3"))
		b.has(3, 3)

		pull()
		b.has(3, 0)
		time.Sleep(stopGrace - time.Second)
		b.has(3, 0)
		time.Sleep(2 * time.Second)
		b.has(0, 0)
		_, pull = b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		b.has(1, 1)
		pull()
		time.Sleep(stopGrace - time.Second)
		b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		time.Sleep(stopGrace)
		b.has(1, 1)
	})
}

func TestPluginTakesOver(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1"), Name: "old.sock"})
		b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2"), Name: "new.sock"})
		b.has(2, 2)
		pull()
		time.Sleep(time.Hour)
		b.has(2, 2)
	})
}

func TestRegisterRefuses(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		for want, req := range map[string]*api.RegisterRequest{
			`requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]`: {Version: "v1alpha", Endpoint: "x", ResourceName: res},
			`the ResourceName "cpu" is invalid`:                       {Version: "v1beta1", Endpoint: "x", ResourceName: "cpu"},
			`the ResourceName "x.kubernetes.io/cpu" is invalid`:       {Version: "v1beta1", Endpoint: "x", ResourceName: "x.kubernetes.io/cpu"},
			`the ResourceName "requests.example.com/a" is invalid`:    {Version: "v1beta1", Endpoint: "x", ResourceName: "requests.example.com/a"},
			`the endpoint "../x" is not the name of a socket in`:      {Version: "v1beta1", Endpoint: "../x", ResourceName: res},
			`the endpoint "kubelet.sock" is not the name of a socket`: {Version: "v1beta1", Endpoint: "kubelet.sock", ResourceName: res},
			`choose a shorter --data-dir`:                             {Version: "v1beta1", Endpoint: strings.Repeat("x", 100), ResourceName: res},
		} {
			err := p.RegisterAs(b.Context(), req)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", req, err)
			}
		}
		if err := p.RegisterAs(b.Context(), &api.RegisterRequest{Version: "v1beta1", Endpoint: "none.sock", ResourceName: "example.com/other"}); err == nil {
			t.Error("registered without a socket")
		}
		if c, _ := b.Capacity(); len(c) != 1 {
			t.Errorf("capacity: %v", c)
		}
	})
}

func TestNotEnough(t *testing.T) {
	inBubble(t, func(b *bench) {
		if err := b.admit(asking("u0", 1)); err != nil {
			t.Errorf("a resource that no plugin offers: %v", err)
		}
		p, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		if err := b.admit(asking("u1", 1, 2)); err == nil || err.Error() != "requested number of devices unavailable for example.com/dev. Requested: 2, Available: 1" {
			t.Errorf("three of two: %v", err)
		}
		b.Release("u1")
		b.mustAdmit(asking("u2", 1, 1))
		if n := b.Taken()[res]; n != 2 {
			t.Errorf("taken: %d", n)
		}
		b.Release("u2")
		sick := plugin.Devices("d1")
		sick[0].Health = api.Unhealthy
		p.Set(sick)
		synctest.Wait()
		const nobody = "no healthy devices present; cannot allocate unhealthy devices example.com/dev"
		if err := b.admit(asking("u3", 1)); err == nil || err.Error() != nobody {
			t.Errorf("all sick: %v", err)
		}
		pull()
		if err := b.admit(asking("u4", 1)); err == nil || err.Error() != nobody {
			t.Errorf("no plugin: %v", err)
		}
	})
}

func TestPluginRefuses(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(plugin.Config{Devices: plugin.Devices("d1"), Options: &api.DevicePluginOptions{PreStartRequired: true},
			Refuse: func(call string, ids []string) error { return status.Error(codes.Internal, call+" fails") }})
		pod := asking("u1", 1)
		if err := b.admit(pod); err == nil || !strings.Contains(err.Error(), "rpc error: code = Internal desc = Allocate fails") {
			t.Errorf("allocate: %v", err)
		}
		if _, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[0]); err == nil {
			t.Error("a container may start without its devices")
		}
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestPluginHangs(t *testing.T) {
	inBubble(t, func(b *bench) {
		hang := make(chan struct{})
		defer close(hang)
		b.plug(plugin.Config{Devices: plugin.Devices("d1"), Refuse: func(string, []string) error { <-hang; return nil }})
		start := time.Now()
		if err := b.admit(asking("u1", 1)); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("allocate: %v", err)
		}
		if took := time.Since(start); took != allocateTimeout {
			t.Errorf("given up after %v", took)
		}
	})
}

func TestContainerConfig(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2"), Mount: "/srv", CDI: "v.io/c=", Options: &api.DevicePluginOptions{PreStartRequired: true}})
		pod := asking("u1", 2, 0)
		b.mustAdmit(pod)
		a, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[0])
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Devices) != 1 || a.Devices[0].HostPath != "/dev/null" || a.Devices[0].ContainerPath != "/dev/testdev" || a.Devices[0].Permissions != "rw" {
			t.Errorf("devices: %v", a.Devices)
		}
		if len(a.Mounts) != 1 || a.Mounts[0].HostPath != "/srv" || a.Mounts[0].ContainerPath != "/testdev" || !a.Mounts[0].Readonly {
			t.Errorf("mounts: %v", a.Mounts)
		}
		if len(a.CDI) != 2 || a.CDI[1].Name != "v.io/c=d2" {
			t.Errorf("CDI: %v", a.CDI)
		}
		if a.Annotations["test.monopod.local/devices"] != "d1,d2" || len(a.Envs) != 1 || a.Envs[0].Value != "d1,d2" {
			t.Errorf("annotations and environment: %v %v", a.Annotations, a.Envs)
		}
		if a, err := b.Allotment(b.Context(), pod, &pod.Spec.Containers[1]); err != nil || len(a.Devices) > 0 {
			t.Errorf("of a container without devices: %v %v", a, err)
		}
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1,d2", "PreStartContainer d1,d2"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestRestartKeepsDevices(t *testing.T) {
	inBubble(t, func(b *bench) {
		cfg := plugin.Config{Devices: plugin.Devices("d1", "d2", "d3")}
		_, pull := b.plug(cfg)
		one, two := asking("u1", 1), asking("u2", 1)
		b.mustAdmit(one)
		b.mustAdmit(two)
		b.restart()
		pull()
		b.has(0, 0)
		if n := b.Taken()[res]; n != 2 {
			t.Errorf("taken: %d", n)
		}
		if err := b.Allocate(b.Context(), two, &two.Spec.Containers[0], topology.Hint{}); err != nil {
			t.Errorf("let in again: %v", err)
		}
		var absent *Absent
		if err := b.Prepare(b.Context(), two); !errors.As(err, &absent) || absent.Resource != res {
			t.Errorf("starts before its plugin is there: %v", err)
		}
		if got := b.ids(two, "a"); got != "d2" {
			t.Errorf("has %q", got)
		}
		b.Retain(func(uid types.UID) bool { return uid == "u2" })

		p, _ := b.plug(cfg)
		b.has(3, 3)
		b.mustAdmit(two)
		b.mustAdmit(asking("u3", 2))
		if calls := p.Calls(); !slices.Equal(calls, []string{"Allocate d1,d3"}) {
			t.Errorf("calls: %v", calls)
		}
	})
}

func TestDevicesGoneAfterRestart(t *testing.T) {
	inBubble(t, func(b *bench) {
		_, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		pod := asking("u1", 1)
		b.mustAdmit(pod)
		b.restart()
		pull()
		b.plug(plugin.Config{Devices: plugin.Devices("d2")})
		if err := b.admit(pod); err == nil || !strings.Contains(err.Error(), "previously allocated devices are no longer healthy") {
			t.Errorf("let in: %v", err)
		}
	})
}

func TestTornCheckpoint(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		b.mustAdmit(asking("u1", 1))
		b.stop()
		path := filepath.Join(b.dir, "kubelet_internal_checkpoint")
		content, err := os.ReadFile(path)
		if err != nil || os.WriteFile(path, content[:len(content)/2], 0o600) != nil {
			t.Fatal(err)
		}
		b.start()
		if b.Lost() == nil {
			t.Error("nobody notices")
		}
		if half, err := os.ReadFile(path + ".damaged"); err != nil || len(half) != len(content)/2 {
			t.Errorf("set aside: %v", err)
		}
		b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		b.mustAdmit(asking("u2", 1))
		if again, err := os.ReadFile(path); err != nil || !strings.Contains(string(again), "u2") {
			t.Errorf("written again: %s, %v", again, err)
		}
	})
}

func TestInitContainersLendTheirDevices(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2", "d3", "d4"), Options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			Prefer: func(r *api.ContainerPreferredAllocationRequest) []string { // the last ones
				ids := slices.Sorted(slices.Values(r.AvailableDeviceIDs))
				return ids[len(ids)-int(r.AllocationSize):]
			}})
		pod := asking("u1", 1, 1)
		side := wanting("side", 1)
		side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{wanting("first", 1), side, wanting("second", 2)}
		b.mustAdmit(pod)
		got := map[string]string{}
		for _, name := range []string{"first", "side", "second", "a", "b"} {
			got[name] = b.ids(pod, name)
		}
		want := map[string]string{"first": "d4", "side": "d4", "second": "d2,d3", "a": "d2", "b": "d3"}
		if !cmp.Equal(got, want) {
			t.Error(cmp.Diff(want, got))
		}
	})
}

func TestPreference(t *testing.T) {
	inBubble(t, func(b *bench) {
		var answer []string
		p, _ := b.plug(plugin.Config{Options: &api.DevicePluginOptions{GetPreferredAllocationAvailable: true},
			Devices: []*api.Device{plugin.At("n0", 0), plugin.At("n1", 1), plugin.At("m1", 1), plugin.At("x")},
			Prefer:  func(*api.ContainerPreferredAllocationRequest) []string { return answer }})
		for i, c := range []struct {
			near        []int
			answer      []string
			count       int64
			asked, want string
		}{
			{near: []int{1}, answer: []string{"n1"}, count: 1, asked: "m1,n1", want: "n1"},
			{near: []int{1}, answer: []string{"n0"}, count: 1, asked: "m1,n1", want: "m1"}, // not its to give
			{near: []int{1}, answer: []string{"x", "n1"}, count: 3, asked: "m1,n0,n1,x", want: "m1,n1,x"},
			{answer: nil, count: 1, asked: "m1,n0,n1,x", want: "m1"},
		} {
			answer = c.answer
			pod := asking(types.UID(rune('0'+i)), c.count)
			b.mustAdmit(pod, c.near...)
			if got := b.ids(pod, "a"); got != c.want {
				t.Errorf("%d: got %s, not %s", i, got, c.want)
			}
			calls := p.Calls()
			asked := strings.Split(strings.TrimPrefix(calls[len(calls)-2], "GetPreferredAllocation "), ",")
			if slices.Sort(asked); strings.Join(asked, ",") != c.asked {
				t.Errorf("%d: may have %v, not %s", i, asked, c.asked)
			}
			b.Release(pod.UID)
		}
	})
}

func TestHints(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.plug(plugin.Config{Devices: []*api.Device{plugin.At("a0", 0), plugin.At("b1", 1), plugin.At("c1", 1), plugin.At("x")}})
		only := func(nodes ...int) topology.Nodes { return topology.NewNodes(nodes...) }
		check := func(what string, pod *corev1.Pod, want ...topology.Hint) {
			t.Helper()
			for scope, got := range map[string][]topology.Hint{"container": b.Hints(pod, &pod.Spec.Containers[0])[res], "pod": b.PodHints(pod)[res]} {
				if !cmp.Equal(got, want) && len(got)+len(want) > 0 || got == nil {
					t.Errorf("%s: hints of the %s are %v, not %v", what, scope, got, want)
				}
			}
		}
		check("one", asking("u1", 1), topology.Hint{Nodes: only(0), Preferred: true}, topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("two", asking("u1", 2), topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("five", asking("u1", 5))
		holder := asking("u2", 1)
		b.mustAdmit(holder, 1)
		check("what it has", holder, topology.Hint{Nodes: only(1), Preferred: true}, topology.Hint{Nodes: only(0, 1)})
		check("two of the rest", asking("u3", 2), topology.Hint{Nodes: only(0, 1)})
		if h := b.Hints(asking("u4", 0), &corev1.Container{}); len(h) > 0 {
			t.Errorf("asks for nothing: %v", h)
		}
	})
}

func TestRealSockets(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "mpd") // short: socket paths have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	news := make(chan struct{}, 100)
	cfg := Config{
		Dir: filepath.Join(dir, "d"), Watched: filepath.Join(dir, "r"), Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
		Changed: func([]types.UID) { news <- struct{}{} },
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	stale, err := net.Listen("unix", filepath.Join(cfg.Dir, "stale.sock"))
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := background(t, m.Run)
	defer stop()
	until(t, func() bool {
		i, err := os.Stat(filepath.Join(cfg.Dir, "kubelet.sock"))
		return err == nil && i.Mode().Perm() == 0o600
	})
	if _, err := os.Lstat(filepath.Join(cfg.Dir, "stale.sock")); err == nil {
		t.Error("an old socket is still there: its plugin does not know that it has to register")
	}
	until(t, func() bool { _, err := os.Stat(cfg.Watched); return err == nil })
	for _, c := range []plugin.Config{
		{Dir: cfg.Dir, Name: "a.sock", Resource: "example.com/a", Devices: plugin.Devices("a1")},
		{Dir: cfg.Watched, Name: "b.sock", Resource: "example.com/b", Devices: plugin.Devices("b1", "b2"), Watched: true},
	} {
		pull := background(t, plugin.New(c).Serve)
		name := corev1.ResourceName(c.Resource)
		for has, want := m.amount(name), int64(len(c.Devices)); has != want; has = m.amount(name) {
			<-news
		}
		pull()
		for m.amount(name) != 0 {
			<-news
		}
	}
	odd := plugin.New(plugin.Config{Dir: cfg.Watched, Name: "c.sock", Resource: "cpu", Watched: true})
	pull := background(t, odd.Serve)
	defer pull()
	if told := <-odd.Told(); told.PluginRegistered || !strings.Contains(told.Error, "is invalid") {
		t.Errorf("told %v", told)
	}
}

func (m *Manager) amount(name corev1.ResourceName) int64 {
	_, a := m.Capacity()
	q := a[name]
	return q.Value()
}

// background runs something until it is stopped.
func background(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// until waits for what must come soon.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came")
		}
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	m, err := New(Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("x", 100)), Watched: t.TempDir(), Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose a shorter --data-dir") {
		t.Errorf("%v", err)
	}
}
