package probe_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"monopod/agent/pod/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// container is a runtime that answers exec probes.
type container struct {
	sick  atomic.Bool
	asked atomic.Int32
}

func (c *container) ExecSync(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
	c.asked.Add(1)
	if c.sick.Load() {
		return nil, []byte("sick"), 1, nil
	}
	return nil, nil, 0, nil
}

func execProbe(p corev1.Probe) *corev1.Probe {
	p.ProbeHandler = corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ok"}}}
	return &p
}

func manager(c *container) *probe.Manager {
	return &probe.Manager{Caller: probe.Caller{Exec: c}, Clock: clock.RealClock{}}
}

func target(s *corev1.Container) probe.Container {
	return probe.Container{Spec: s, Target: probe.Target{ContainerID: "id"}}
}

func TestReadinessFollowsThresholds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &container{}
		m := manager(c)
		defer m.Stop()
		m.Add(t.Context(),
			target(&corev1.Container{ReadinessProbe: execProbe(
				corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, SuccessThreshold: 2, FailureThreshold: 3})}))
		ready := func(want bool) {
			t.Helper()
			synctest.Wait()
			if m.Ready("id") != want {
				t.Errorf("ready is %v, want %v", !want, want)
			}
		}
		time.Sleep(6 * time.Second) // first success after 5 s
		ready(false)
		time.Sleep(10 * time.Second) // second success after 15 s
		ready(true)
		c.sick.Store(true)
		time.Sleep(20 * time.Second) // failures after 25 and 35 s
		ready(true)
		time.Sleep(10 * time.Second) // third failure after 45 s
		ready(false)
	})
}

func TestStartupGatesTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &container{}
		c.sick.Store(true)
		m := manager(c)
		defer m.Stop()
		m.Add(t.Context(), target(&corev1.Container{
			StartupProbe:  execProbe(corev1.Probe{PeriodSeconds: 1, FailureThreshold: 10}),
			LivenessProbe: execProbe(corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
		}))
		time.Sleep(5500 * time.Millisecond)
		if _, failed := m.Failed("id"); failed || m.Started("id") || m.Ready("id") {
			t.Error("failed, started or ready before the success of the startup probe")
		}
		c.sick.Store(false)
		time.Sleep(time.Second)
		if !m.Started("id") || !m.Ready("id") {
			t.Error("not started and ready after the success of the startup probe")
		}
		c.sick.Store(true)
		time.Sleep(1100 * time.Millisecond)
		if kind, failed := m.Failed("id"); !failed || kind != probe.Liveness {
			t.Error("the liveness probe did not fail")
		}
		asked := c.asked.Load()
		time.Sleep(time.Minute)
		if c.asked.Load() != asked {
			t.Error("the manager still probes a failed container")
		}
	})
}

func TestStartupFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &container{}
		c.sick.Store(true)
		m := manager(c)
		var mu sync.Mutex
		var failures int
		m.Events.Failed = func(string, probe.Kind, error) { mu.Lock(); failures++; mu.Unlock() }
		defer m.Stop()
		m.Add(t.Context(),
			target(&corev1.Container{StartupProbe: execProbe(corev1.Probe{PeriodSeconds: 1, FailureThreshold: 3})}))
		time.Sleep(time.Minute)
		if kind, failed := m.Failed("id"); !failed || kind != probe.Startup {
			t.Error("the startup probe did not fail")
		}
		if mu.Lock(); failures != 3 {
			t.Errorf("%d failures reported, want 3", failures)
		}
		mu.Unlock()
	})
}

func TestAdoptedKeepsItsState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &container{}
		m := manager(c)
		defer m.Stop()
		one := target(&corev1.Container{
			StartupProbe:   execProbe(corev1.Probe{PeriodSeconds: 10}),
			ReadinessProbe: execProbe(corev1.Probe{PeriodSeconds: 10, InitialDelaySeconds: 60}),
		})
		one.Adopted, one.Ready, one.Started = true, true, true
		m.Add(t.Context(), one)
		if !m.Ready("id") || !m.Started("id") {
			t.Error("an adopted container lost its readiness")
		}
		time.Sleep(11 * time.Second)
		if c.asked.Load() == 0 {
			t.Error("the manager does not probe an adopted container")
		}
		m.Keep(func(string) bool { return false })
		asked := c.asked.Load()
		time.Sleep(time.Minute)
		if c.asked.Load() != asked {
			t.Error("the manager still probes a container after Keep dropped it")
		}
	})
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	states := health.NewServer()
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, states)
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	defer func() { server.Stop(); <-done }()
	host, port := hostPort(t, l.Addr().String())
	h := &corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port)}}
	ask := func() error {
		_, err := (probe.Caller{}).Do(t.Context(), h, probe.Target{Host: host}, 5*time.Second)
		return err
	}
	if err := ask(); err != nil {
		t.Error(err)
	}
	states.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	fails := func(what, want string) {
		t.Helper()
		if err := ask(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	fails("a service that does not serve", `service unhealthy (responded with "NOT_SERVING")`)
	h.GRPC.Service = new("unknown")
	fails("an unknown service", "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service")

	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	plain := grpc.NewServer()
	ended := make(chan error, 1)
	go func() { ended <- plain.Serve(other) }()
	defer func() { plain.Stop(); <-ended }()
	_, port = hostPort(t, other.Addr().String())
	h.GRPC.Port = int32(port)
	fails(
		"server without the health protocol",
		"error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service "+
			"grpc.health.v1.Health",
	)
}

// A failed connection is reported as a timeout, as by upstream.
func TestGRPCTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		refused := probe.Caller{Dial: func(context.Context, string, string) (net.Conn,
			error) {
			return nil, errors.New("connection refused")
		}}
		h := &corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}
		_, err := refused.Do(t.Context(), h, probe.Target{Host: "192.0.2.1"}, 2*time.Second)
		if want := `timeout: failed to connect service "192.0.2.1:80" within 2s: context deadline exceeded`; err == nil ||
			err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// broken is a runtime that fails with an error.
type broken struct{ error }

func (b broken) ExecSync(context.Context, string, []string, time.Duration) ([]byte, []byte, int32, error) {
	return nil, nil, 0, b.error
}

// TestUnknownResultsDoNotCount checks that no probe fails because the runtime is unavailable.
func TestUnknownResultsDoNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &probe.Manager{Caller: probe.Caller{Exec: broken{errors.New("no runtime")}}, Clock: clock.RealClock{}}
		defer m.Stop()
		one := target(&corev1.Container{
			LivenessProbe:  execProbe(corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
			ReadinessProbe: execProbe(corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1}),
		})
		one.Adopted, one.Ready = true, true
		m.Add(t.Context(), one)
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, failed := m.Failed("id"); failed || !m.Ready("id") {
			t.Error("a probe failed because the runtime is unavailable")
		}
	})
}

func TestExecTimeout(t *testing.T) {
	t.Parallel()
	h := &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "5"}}}
	_, err := (probe.Caller{Exec: broken{status.Error(codes.DeadlineExceeded, "late")}}).Do(t.Context(), h, probe.Target{},
		time.Second)
	if unknown := (*probe.UnknownError)(nil); errors.As(err, &unknown) || err == nil ||
		err.Error() != `command timed out: "sleep 5" timed out after 1s` {
		t.Errorf("error of an exec probe that times out: %v", err)
	}
}

func TestExecErrors(t *testing.T) {
	t.Parallel()
	h := &corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}
	if _, err := (probe.Caller{Exec: broken{errors.New("no runtime")}}).Do(t.Context(), h, probe.Target{},
		time.Second); err == nil {
		t.Error("no error from an unavailable runtime")
	}
	if _, err := (probe.Caller{}).Do(t.Context(), &corev1.ProbeHandler{}, probe.Target{}, time.Second); err == nil {
		t.Error("a probe without a handler succeeded")
	}
}
