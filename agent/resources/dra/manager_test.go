package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/agent/host/checkpoint"
	"monopod/agent/resources/plugins"
	"monopod/apiserver/kit/guard"
	"monopod/testdata/deviceplugin/sockets"
	"monopod/testdata/deviceplugin/sockets/socketstest"
	sample "monopod/testdata/dradriver/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpus = "gpu.example.com"

// world is a node with claims and drivers.
type world struct {
	*testing.T
	dir     string
	sockets sockets.Memory

	mu     sync.Mutex
	claims map[string]*resourcev1.ResourceClaim
	slices map[string]*resourcev1.ResourceSlice
	woken  []string

	changed []types.UID // pods whose devices' health has changed; guarded by mu
}

func (w *world) Claim(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.claims[name]; c != nil && c.Namespace == namespace {
		return c, nil
	}
	return nil, errors.New("not found")
}

func (w *world) Slices(_ context.Context, driver string) (out []*resourcev1.ResourceSlice, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.slices {
		if driver == "" || s.Spec.Driver == driver {
			out = append(out, s)
		}
	}
	return out, nil
}

func (w *world) RemoveSlice(_ context.Context, s *resourcev1.ResourceSlice) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.slices, s.Name)
	return nil
}

// in runs a test in virtual time.
func in(t *testing.T, test func(w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		test(&world{T: t, dir: t.TempDir(), claims: map[string]*resourcev1.ResourceClaim{},
			slices: map[string]*resourcev1.ResourceSlice{}})
	})
}

// start starts a manager, as a new process does.
func (w *world) start() (m *Manager, stop func()) {
	m = New(Config{API: w, File: checkpoint.File(filepath.Join(w.dir, "state")), Clock: clock.RealClock{},
		Log: zap.NewNop(), Dial: w.sockets.Dial,
		Registered: func(driver string) { w.woken = append(w.woken, driver) }, Guard: guard.Logging(zap.NewNop()),
		Health: func(pods []types.UID) { w.mu.Lock(); w.changed = append(w.changed, pods...); w.mu.Unlock() }})
	ctx, cancel := context.WithCancel(context.Background())
	wait := m.Start(ctx)
	stop = sync.OnceFunc(func() { cancel(); wait() })
	w.Cleanup(stop)
	return m, stop
}

// plug starts a driver and registers it.
func (w *world) plug(m *Manager, cfg sample.Config) (d *sample.Driver, pull func()) {
	cfg.Dir, cfg.Listen = w.dir, w.sockets.Listen
	cfg.Name = gpus
	cfg.CDI = w.dir
	if cfg.Devices == nil {
		cfg.Devices = func(context.Context, string, string) (string, []sample.Device, error) {
			return "pool", []sample.Device{{Request: "a", Name: "g1"}, {Request: "b/large", Name: "g2"}}, nil
		}
	}
	d = sample.New(cfg)
	life, end := context.WithCancel(context.Background())
	unplug := socketstest.Plug(w, d.Serve)
	if err := m.Welcome(life, life,
		plugins.Plugin{Name: cfg.Name, Socket: d.Socket(), Versions: d.Versions()}); err != nil {
		w.Fatal(err)
	}
	pull = func() { end(); unplug() }
	w.Cleanup(pull)
	return d, pull
}

// give creates a claim with devices of the driver, reserved for pods.
func (w *world) give(name string, pods ...*corev1.Pod) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "a", Driver: gpus, Pool: "pool", Device: "g1"},
		{Request: "b/large", Driver: gpus, Pool: "pool", Device: "g2"}}}}
	for _, p := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims[name] = c
	return c
}

// pod returns a pod with a claim. Its container uses one request of the claim; "": all requests.
func pod(name, claim, request string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
			Containers: []corev1.Container{{Name: "c",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu", Request: request}}}}},
		}}
}

// cdi returns the CDI devices of a container.
func (w *world) cdi(m *Manager, p *corev1.Pod) string {
	w.Helper()
	a, err := m.Allotment(w.Context(), p, &p.Spec.Containers[0])
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, d := range a.CDI {
		names = append(names, strings.TrimPrefix(d.Name, gpus+"/device=uid-"))
	}
	return strings.Join(names, " ")
}

func (w *world) expect(d *sample.Driver, calls ...string) {
	w.Helper()
	if got := d.Calls(); !slices.Equal(got, calls) {
		w.Errorf("calls %q, want %q", got, calls)
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func TestContainersGetTheDevicesOfTheirRequests(t *testing.T) {
	t.Parallel()
	for _, old := range []bool{false, true} {
		t.Run(fmt.Sprintf("old %v", old), func(t *testing.T) {
			in(t, func(w *world) {
				m, _ := w.start()
				d, _ := w.plug(m, sample.Config{Old: old})
				all, one, sub, none := pod("all", "c", ""), pod("one", "c", "a"), pod("sub", "c", "b"), pod("none", "c", "")
				none.Spec.Containers[0].Resources.Claims = nil
				w.give("c", all, one, sub, none)
				for _, p := range []*corev1.Pod{all, one, sub, none} {
					w.must(m.Prepare(w.Context(), p))
				}
				w.expect(d, "prepare c")
				if got := []string{w.cdi(m, all), w.cdi(m, one), w.cdi(m, sub), w.cdi(m, none)}; !slices.Equal(got,
					[]string{"c-g1 c-g2", "c-g1", "c-g2", ""}) {
					t.Errorf("devices: %q", got)
				}
				r := m.Resources(one, &one.Spec.Containers[0])
				if len(r) != 1 || r[0].ClaimName != "c" || len(r[0].ClaimResources) != 1 ||
					r[0].ClaimResources[0].DeviceName != "g1" {
					t.Errorf("resources: %v", r)
				}
				for _, p := range []*corev1.Pod{all, one, sub} {
					w.must(m.Unprepare(w.Context(), p.UID))
				}
				w.expect(d, "prepare c")
				w.must(m.Unprepare(w.Context(), none.UID))
				w.must(m.Unprepare(w.Context(), none.UID))
				w.expect(d, "prepare c", "unprepare c")
			})
		})
	}
}

func TestClaimsThatCannotBePrepared(t *testing.T) {
	t.Parallel()
	p := pod("p", "c", "")
	for name, c := range map[string]struct {
		give   func(w *world)
		driver *sample.Config
		want   string
	}{
		"no claim": {func(*world) {}, &sample.Config{}, "fetch ResourceClaim c: not found"},
		"not allocated": {func(w *world) { w.give("c", p).Status.Allocation = nil }, &sample.Config{},
			"ResourceClaim c has no devices yet"},
		"not reserved": {func(w *world) { w.give("c", pod("q", "c", "")) }, &sample.Config{},
			"pod p(uid-p) is not allowed to use resource claim c(uid-c)"},
		"no driver": {func(w *world) { w.give("c", p) }, nil,
			"prepare dynamic resources: DRA driver gpu.example.com is not registered"},
		"driver fails": {func(w *world) { w.give("c", p) },
			&sample.Config{Refuse: func(string, string) error { return errors.New("too hot") }},
			"NodePrepareResources of DRA driver gpu.example.com failed for claim c: too hot"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				m, _ := w.start()
				if c.driver != nil {
					w.plug(m, *c.driver)
				}
				c.give(w)
				if err := m.Prepare(w.Context(), p); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				absent := (*Absent)(nil)
				if err := m.Prepare(w.Context(), p); errors.As(err, &absent) != (c.driver == nil) {
					t.Errorf("second Prepare: %v", err)
				}
			})
		})
	}
}

// After a kill of the process and without the driver, prepared claims stay prepared. Claims of deleted pods are
// unprepared as soon as the driver is back.
func TestClaimsSurviveAKill(t *testing.T) {
	in(t, func(w *world) {
		m, kill := w.start()
		d, pull := w.plug(m, sample.Config{})
		runs, gone := pod("runs", "a", ""), pod("gone", "b", "")
		w.give("a", runs)
		w.give("b", gone)
		w.must(m.Prepare(w.Context(), runs))
		w.must(m.Prepare(w.Context(), gone))
		kill()
		pull()

		m, _ = w.start()
		m.Retain(func(uid types.UID) bool { return uid == runs.UID })
		if got := w.cdi(m, runs); got != "a-g1 a-g2" { // restarting a container needs no driver
			t.Errorf("devices: %q", got)
		}
		time.Sleep(time.Minute)
		later, _ := w.plug(m, sample.Config{})
		synctest.Wait()
		w.expect(later, "unprepare b")
		w.must(m.Unprepare(w.Context(), runs.UID))
		w.expect(later, "unprepare b", "unprepare a")
		w.expect(d, "prepare a", "prepare b")
		if m.cfg.File.Exists() {
			t.Error("the checkpoint still exists after the last claim")
		}
	})
}

// The manager records a claim before it calls the driver, so that it unprepares the claim even after a kill during the
// call.
func TestCallIsRecordedBeforeItIsMade(t *testing.T) {
	in(t, func(w *world) {
		m, kill := w.start()
		p := pod("p", "c", "")
		w.give("c", p)
		if err := m.Prepare(w.Context(), p); err == nil { // without a driver, like a kill during the call
			t.Fatal("Prepare succeeded without a driver")
		}
		kill()
		m, _ = w.start()
		d, _ := w.plug(m, sample.Config{})
		if !m.Holds(p.UID) {
			t.Fatal("the claim is not recorded")
		}
		w.must(m.Unprepare(w.Context(), p.UID))
		w.expect(d, "unprepare c")
	})
}

// A claim that is reserved for a new pod is not prepared before it is unprepared for the previous pod.
func TestClaimIsNotPreparedBeforeItIsReleased(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		d, _ := w.plug(m, sample.Config{})
		first, second := pod("first", "c", ""), pod("second", "c", "")
		w.give("c", first)
		w.must(m.Prepare(w.Context(), first))
		w.give("c", second) // as after a forced deletion of the first pod
		if err := m.Prepare(w.Context(), second); err == nil || !strings.Contains(err.Error(), "still being released") {
			t.Errorf("Prepare for the second pod: %v", err)
		}
		w.must(m.Unprepare(w.Context(), first.UID))
		w.must(m.Prepare(w.Context(), second))
		w.expect(d, "prepare c", "unprepare c", "prepare c")
	})
}

// After damage of the checkpoint, the claims of running pods are prepared again.
func TestDamagedCheckpoint(t *testing.T) {
	in(t, func(w *world) {
		m, kill := w.start()
		w.plug(m, sample.Config{})
		p := pod("p", "c", "")
		w.give("c", p)
		w.must(m.Prepare(w.Context(), p))
		kill()
		w.must(m.cfg.File.Write([]byte("{")))
		m, _ = w.start()
		if m.Lost() == nil {
			t.Error("Lost returned nil for a damaged checkpoint")
		}
		w.plug(m, sample.Config{})
		if got := w.cdi(m, p); got != "c-g1 c-g2" {
			t.Errorf("devices: %q", got)
		}
	})
}

func TestSlicesOfMissingDrivers(t *testing.T) {
	in(t, func(w *world) {
		slice := func(driver string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.slices[driver] = &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: driver},
				Spec: resourcev1.ResourceSliceSpec{Driver: driver}}
		}
		has := func() string {
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			var names []string
			for name := range w.slices {
				names = append(names, name)
			}
			slices.Sort(names)
			return strings.Join(names, " ")
		}
		slice(gpus)
		slice("old.example.com")
		m, _ := w.start()
		_, pull := w.plug(m, sample.Config{})
		time.Sleep(29 * time.Second)
		if got := has(); got != "gpu.example.com old.example.com" {
			t.Errorf("after 29 s: %q", got)
		}
		time.Sleep(2 * time.Second) // more than 30 s after the start
		if got := has(); got != gpus {
			t.Errorf("after 31 s: %q", got)
		}
		pull()
		time.Sleep(20 * time.Second)
		_, pull = w.plug(m, sample.Config{}) // as in an update of the driver
		time.Sleep(time.Minute)
		if got := has(); got != gpus {
			t.Errorf("after an update: %q", got)
		}
		pull()
		time.Sleep(31 * time.Second)
		if got := has(); got != "" {
			t.Errorf("after the end of the driver: %q", got)
		}
		if !slices.Equal(w.woken, []string{gpus, gpus}) {
			t.Errorf("notified of the drivers %q", w.woken)
		}
	})
}

func TestDriversThatAreRejected(t *testing.T) {
	in(t, func(w *world) {
		m, _ := w.start()
		for want, p := range map[string]plugins.Plugin{
			"none of the versions": {Name: gpus, Socket: "/s", Versions: []string{"v9.DRAPlugin"}},
			"name is empty":        {Socket: "/s", Versions: []string{"v1.DRAPlugin"}},
			"at most 107 bytes":    {Name: gpus, Socket: "/" + strings.Repeat("s", 200), Versions: []string{"v1.DRAPlugin"}},
		} {
			if err := m.Welcome(t.Context(), t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		}
	})
}
