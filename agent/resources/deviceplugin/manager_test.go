package deviceplugin

import (
	"context"
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
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	reg "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/utils/clock"

	"monopod/agent/resources/plugins"
	"monopod/agent/resources/topology"
	"monopod/apiserver/kit/guard"
	"monopod/testdata/deviceplugin/plugin"
	"monopod/testdata/deviceplugin/sockets"
	"monopod/testdata/deviceplugin/sockets/socketstest"
	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const res = "example.com/dev"

// bench is a Manager with plugins, in a synctest bubble.
type bench struct {
	*testing.T
	*Manager
	dir     string
	sockets *sockets.Memory
	stop    func()

	mu      sync.Mutex // guards changed
	changed [][]types.UID
}

func inBubble(t *testing.T, test func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, dir: t.TempDir(), sockets: new(sockets.Memory)}
		b.start()
		t.Cleanup(func() { b.stop() })
		test(b)
	})
}

// start runs a Manager over the same folder.
func (b *bench) start() {
	b.Helper()
	m, err := New(Config{
		Dir: b.dir, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
		Nodes:  topology.NewNodes(0, 1),
		Listen: b.sockets.Listen, Dial: b.sockets.Dial,
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

func (b *bench) changes() [][]types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// plug starts a plugin and returns it and a function that stops it.
func (b *bench) plug(cfg plugin.Config) (p *plugin.Plugin, pull func()) {
	b.Helper()
	cfg.Dir, cfg.Listen, cfg.Dial = b.dir, b.sockets.Listen, b.sockets.Dial
	if cfg.Name == "" {
		cfg.Name = "dev.sock"
	}
	if cfg.Resource == "" {
		cfg.Resource = res
	}
	p = plugin.New(cfg)
	return p, socketstest.Plug(b, p.Serve)
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

// asking returns a pod whose containers request these numbers of devices.
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

// admit admits a pod as the agent does.
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

// ids returns the devices of a container, from its environment.
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

func TestDevicesAppearAndDisappear(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, pull := b.plug(plugin.Config{Devices: plugin.Devices("d1", "d2")})
		b.has(2, 2)
		pod := asking("u1", 1)
		b.mustAdmit(pod)
		sick := plugin.Devices("d1", "d2")
		sick[0].Health = api.Unhealthy
		p.Set(sick)
		b.has(2, 1)
		want := map[string][]corev1.ResourceStatus{"a": {{Name: res, Resources: []corev1.ResourceHealth{{ResourceID: "d1",
			Health: corev1.ResourceHealthStatusUnhealthy}}}}}
		if got := b.Health("u1"); !cmp.Equal(got, want) {
			t.Errorf("health: %s", cmp.Diff(want, got))
		}
		if all := b.changes(); !slices.Equal(all[len(all)-1], []types.UID{"u1"}) {
			t.Errorf("changes reported: %v, want u1 last", all)
		}
		p.Set(plugin.Devices("d1", "d2", "d3"))
		b.has(3, 3)

		pull()
		b.has(3, 0)
		time.Sleep(returnGrace - time.Second)
		b.has(3, 0)
		time.Sleep(2 * time.Second)
		b.has(0, 0)
		_, pull = b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		b.has(1, 1)
		pull()
		time.Sleep(returnGrace - time.Second)
		b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		time.Sleep(returnGrace)
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

func TestRegisterRejects(t *testing.T) {
	inBubble(t, func(b *bench) {
		p, _ := b.plug(plugin.Config{Devices: plugin.Devices("d1")})
		for want, req := range map[string]*api.RegisterRequest{
			`requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]`: {Version: "v1alpha",
				Endpoint: "x", ResourceName: res},
			`the ResourceName "cpu" is invalid`: {Version: "v1beta1", Endpoint: "x", ResourceName: "cpu"},
			`the ResourceName "x.kubernetes.io/cpu" is invalid`: {Version: "v1beta1", Endpoint: "x",
				ResourceName: "x.kubernetes.io/cpu"},
			`the ResourceName "requests.example.com/a" is invalid`: {Version: "v1beta1", Endpoint: "x",
				ResourceName: "requests.example.com/a"},
			`the endpoint "../x" is not the name of a socket in`: {Version: "v1beta1", Endpoint: "../x", ResourceName: res},
			`the endpoint "kubelet.sock" is not the name of a socket`: {Version: "v1beta1", Endpoint: "kubelet.sock",
				ResourceName: res},
			`choose a shorter --data-dir`: {Version: "v1beta1", Endpoint: strings.Repeat("x", 100), ResourceName: res},
		} {
			err := p.RegisterAs(b.Context(), req)
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v", req, err)
			}
		}
		if err := p.RegisterAs(b.Context(), &api.RegisterRequest{Version: "v1beta1", Endpoint: "none.sock",
			ResourceName: "example.com/other"}); err == nil {
			t.Error("Register succeeded without a socket")
		}
		if c, _ := b.Capacity(); len(c) != 1 {
			t.Errorf("capacity: %v", c)
		}
	})
}

func TestRealSockets(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "mpd") // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	news := make(chan struct{}, 100)
	cfg := Config{
		Dir: filepath.Join(dir, "d"), Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: prometheus.NewRegistry(),
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
	var m *Manager
	watched := filepath.Join(dir, "r")
	cfg.Watch = func(ctx context.Context) {
		w := plugins.Watcher{Dir: watched, Dial: plugins.Dial, Clock: cfg.Clock, Log: cfg.Log, Guard: guard.Logging(cfg.Log),
			Handlers: map[string]plugins.Handler{reg.DevicePlugin: m.Welcome}}
		w.Run(ctx)
	}
	m, err = New(cfg)
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
		t.Error("a stale socket still exists, so its plugin does not register again")
	}
	until(t, func() bool { _, err := os.Stat(watched); return err == nil })
	followed(t, m, watched, news)
	odd := plugin.New(plugin.Config{Dir: watched, Name: "c.sock", Resource: "cpu", Watched: true})
	pull := background(t, odd.Serve)
	defer pull()
	if answer := <-odd.Registration(); answer.PluginRegistered || !strings.Contains(answer.Error, "is invalid") {
		t.Errorf("registration of an invalid resource: %v", answer)
	}
}

// followed checks that the manager detects start and stop of plugins that register themselves and of watched plugins.
func followed(t *testing.T, m *Manager, watched string, news <-chan struct{}) {
	for _, c := range []plugin.Config{
		{Dir: m.cfg.Dir, Name: "a.sock", Resource: "example.com/a", Devices: plugin.Devices("a1")},
		{Dir: watched, Name: "b.sock", Resource: "example.com/b", Devices: plugin.Devices("b1", "b2"), Watched: true},
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
}

func (m *Manager) amount(name corev1.ResourceName) int64 {
	_, a := m.Capacity()
	q := a[name]
	return q.Value()
}

// background runs run until a call of stop.
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

// until waits until ok returns true.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	if !harness.Eventually(harness.Enough, ok) {
		t.Fatal("timeout")
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	m, err := New(Config{Dir: filepath.Join(t.TempDir(), strings.Repeat("x", 100)), Clock: clock.RealClock{},
		Log: zap.NewNop(), Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "choose a shorter --data-dir") {
		t.Errorf("Run with a path that is too long returned %v", err)
	}
}
