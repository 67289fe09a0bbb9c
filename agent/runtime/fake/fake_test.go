package fake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"monopod/agent/runtime"
	"monopod/agent/runtime/fake"
	"monopod/testdata/harness"
)

// sandbox is a pod with a pulled image.
type sandbox struct {
	*testing.T
	*fake.Runtime
	id     string
	config *cri.PodSandboxConfig
}

func newSandbox(t *testing.T, r *fake.Runtime, name string) *sandbox {
	t.Helper()
	s := &sandbox{T: t, Runtime: r, config: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "default"}, Hostname: name,
	}}
	id, err := r.RunPodSandbox(t.Context(), s.config, "")
	if err != nil {
		t.Fatal(err)
	}
	s.id = id
	return s
}

func (s *sandbox) run(image string, words ...string) (id string) {
	s.Helper()
	if _, err := s.PullImage(s.Context(), image, nil, nil); err != nil {
		s.Fatal(err)
	}
	id, err := s.CreateContainer(s.Context(), s.id, &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: image}, Args: words,
	}, s.config)
	if err != nil {
		s.Fatal(err)
	}
	if err := s.StartContainer(s.Context(), id); err != nil {
		s.Fatal(err)
	}
	return id
}

func (s *sandbox) ip() string {
	s.Helper()
	st, err := s.PodSandboxStatus(s.Context(), s.id)
	if err != nil {
		s.Fatal(err)
	}
	return st.Network.Ip
}

func (s *sandbox) state(id string) (cri.ContainerState, int32, string) {
	s.Helper()
	st, err := s.ContainerStatus(s.Context(), id)
	if err != nil {
		s.Fatal(err)
	}
	return st.State, st.ExitCode, st.Reason
}

// bubble runs a test with a runtime in virtual time.
func bubble(t *testing.T, config fake.Config, test func(*testing.T, *fake.Runtime)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := fake.New(config)
		defer r.Close()
		test(t, r)
	})
}

// TestStop checks the times that a user observes with kubectl delete.
func TestStop(t *testing.T) {
	for _, tc := range []struct {
		name  string
		args  string
		grace time.Duration
		takes time.Duration
		code  int32
	}{
		{"immediate", "", 30 * time.Second, 0, 0},
		{"takes 3 s", "-stop-after 3s", 10 * time.Second, 3 * time.Second, 0},
		{"takes longer than the grace period", "-stop-after 3s", 2 * time.Second, 2 * time.Second, 137},
		{"ignores SIGTERM", "-ignore-term", 10 * time.Second, 10 * time.Second, 137},
		{"grace in whole seconds", "-ignore-term", 300 * time.Millisecond, time.Second, 137},
		{"no grace", "-stop-after 3s", 0, 0, 137},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
				s := newSandbox(t, r, "web")
				id := s.run("web", strings.Fields(tc.args)...)
				synctest.Wait()
				began := time.Now()
				if err := r.StopContainer(t.Context(), id, tc.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tc.takes {
					t.Errorf("took %v, want %v", took, tc.takes)
				}
				if _, code, _ := s.state(id); code != tc.code {
					t.Errorf("code %d, want %d", code, tc.code)
				}
			})
		})
	}
}

func TestStopGraceIsShortened(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		s := newSandbox(t, r, "web")
		id := s.run("web", "-ignore-term")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.StopContainer(ctx, id, time.Minute); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("stop: %v", err)
		}
		if state, _, _ := s.state(id); state != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the container is %v", state)
		}
	})
}

// TestInjectedClock checks that simulated processes use the clock of the config.
func TestInjectedClock(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r := fake.New(fake.Config{Clock: clock})
	defer r.Close()
	s := newSandbox(t, r, "web")
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := s.run("web", "sleep", "3600", "exit", "4")
	if e := <-events; !e.At.Equal(clock.Now()) {
		t.Errorf("start event at %v", e.At)
	}
	for !clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	clock.Step(time.Hour)
	if e := <-events; e.Type != runtime.EventContainerExited || e.ExitCode != 4 || !e.At.Equal(clock.Now()) {
		t.Errorf("event %+v", e)
	}
	if _, code, reason := s.state(id); code != 4 || reason != "Error" {
		t.Errorf("code %d, reason %q", code, reason)
	}
}

func TestLatencyAndFailures(t *testing.T) {
	broken := errors.New("broken")
	var asked []string
	config := fake.Config{Latency: time.Second, Fail: func(op, id string) error {
		asked = append(asked, op+" "+id)
		if op == "PullImage" {
			return broken
		}
		return nil
	}}
	bubble(t, config, func(t *testing.T, r *fake.Runtime) {
		began := time.Now()
		s := newSandbox(t, r, "web")
		if _, err := r.PullImage(t.Context(), "nginx", nil, nil); !errors.Is(err, broken) {
			t.Errorf("pull: %v", err)
		}
		if err := r.StopPodSandbox(t.Context(), s.id); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("three calls took %v", took)
		}
		if diff := cmp.Diff([]string{"RunPodSandbox default/web", "PullImage nginx", "StopPodSandbox " + s.id},
			asked); diff != "" {
			t.Error(diff)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := r.Status(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("status: %v", err)
		}
	})
}

func TestOOM(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		s := newSandbox(t, r, "web")
		events, err := r.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.PullImage(t.Context(), "web", nil, nil); err != nil {
			t.Fatal(err)
		}
		id, err := r.CreateContainer(t.Context(), s.id, &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: "web"}, Args: []string{"alloc", "256"},
			Linux: &cri.LinuxContainerConfig{Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}},
		}, s.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		for _, want := range []runtime.EventType{runtime.EventContainerStarted, runtime.EventContainerOOM,
			runtime.EventContainerExited} {
			if e := <-events; e.Type != want || e.PodUID != "uid-web" {
				t.Errorf("event %+v, want type %d", e, want)
			}
		}
		if _, code, reason := s.state(id); code != 137 || reason != "OOMKilled" {
			t.Errorf("code %d, reason %q", code, reason)
		}
	})
}

// TestSlowReader checks that a slow reader of events gets a resync instead of the events that it missed.
func TestSlowReader(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		slow, err := r.Events(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			newest := newSandbox(t, r, "web")
			r.StopPodSandbox(ctx, newest.id)
			r.RemovePodSandbox(ctx, newest.id)
		}
		resyncs, got := 0, 0
		for synctest.Wait(); ; synctest.Wait() {
			select {
			case e := <-slow:
				got++
				if e.Type == runtime.EventResync {
					resyncs++
				}
				continue
			default:
			}
			break
		}
		if resyncs == 0 || got >= 3000 {
			t.Errorf("%d events, %d of them resyncs", got, resyncs)
		}
		r.Resync()
		if e := <-slow; e.Type != runtime.EventResync {
			t.Errorf("event %+v", e)
		}
		cancel()
		if e, ok := <-slow; ok {
			t.Errorf("event %+v after the end of the context", e)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		s := newSandbox(t, r, "web")
		s.run("web", "-ignore-term")
		events, err := r.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for range events {
		}
		_, err = r.Version(t.Context())
		if status.Code(err) != codes.Unavailable {
			t.Errorf("call of a closed runtime: %v", err)
		}
	})
}

// TestAnyImage checks that an unknown image runs as the web server, and that pods reach each other.
func TestAnyImage(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		nginx, box := newSandbox(t, r, "nginx"), newSandbox(t, r, "box")
		nginx.run("nginx:1.29", "nginx", "-g", "daemon off;")
		sleeper := box.run("busybox", "sleep", "3600")
		synctest.Wait()

		page, err := get(t, r, nginx.ip())
		if err != nil || !strings.HasPrefix(page, "Hello from nginx!") {
			t.Errorf("page %q, %v", page, err)
		}
		if _, err := get(t, r, box.ip()); err == nil {
			t.Error("a pod with sleep answers HTTP")
		}
		out, _, code,
			err := r.ExecSync(t.Context(), sleeper, []string{"get", "http://" + nginx.ip() + ":8080/x"}, time.Second)
		if err != nil || code != 0 || !strings.HasPrefix(string(out), "Hello from nginx!") {
			t.Errorf("from pod to pod: %q, code %d, %v", out, code, err)
		}
		if err := r.StopPodSandbox(t.Context(), nginx.id); err != nil {
			t.Fatal(err)
		}
		if _, code, _ := nginx.state(nginx.only()); code != 137 {
			t.Errorf("code %d", code)
		}
	})
}

func (s *sandbox) only() (id string) {
	s.Helper()
	list, err := s.ListContainers(s.Context(), &cri.ContainerFilter{PodSandboxId: s.id})
	if err != nil || len(list) != 1 {
		s.Fatalf("containers %v, %v", list, err)
	}
	return list[0].Id
}

func get(t *testing.T, r *fake.Runtime, ip string) (string, error) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: r.Dial, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + net.JoinHostPort(ip, "8080") + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	return string(page), err
}

// TestLoopback checks that programs on the host reach pods on the loopback network, and that two runtimes do not
// conflict.
func TestLoopback(t *testing.T) {
	t.Parallel()
	addresses := map[string]bool{}
	for range 2 {
		r := fake.New(fake.Config{Loopback: true})
		t.Cleanup(func() { r.Close() })
		s := newSandbox(t, r, "web")
		addresses[s.ip()] = true
		id := s.run("web")
		if page := curl(t, s.ip()); !strings.HasPrefix(page, "Hello from web!") {
			t.Errorf("page %q", page)
		}
		if err := r.StopContainer(t.Context(), id, time.Second); err != nil {
			t.Fatal(err)
		}
		other, err := net.Listen("tcp", "127.0.0.1:0") // a listener of no pod
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { other.Close() })
		if _, err := r.Dial(t.Context(), "tcp", other.Addr().String()); !errors.Is(err, syscall.EHOSTUNREACH) {
			t.Errorf("Dial of an address of the host: %v", err)
		}
	}
	if len(addresses) != 2 {
		t.Errorf("addresses %v, want two", addresses)
	}
}

// curl requests a page over the host network. It waits until a server listens.
func curl(t *testing.T, ip string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	var resp *http.Response
	var err error
	if !harness.Eventually(harness.Enough, func() bool {
		resp, err = client.Get("http://" + net.JoinHostPort(ip, "8080") + "/")
		return err == nil
	}) {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, _ := io.ReadAll(resp.Body)
	return string(page)
}

func TestAddresses(t *testing.T) {
	bubble(t, fake.Config{Subnet: netip.MustParsePrefix("10.1.0.0/29")}, func(t *testing.T, r *fake.Runtime) {
		var pods []*sandbox
		for _, want := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6", "10.1.0.7"} {
			s := newSandbox(t, r, "pod-"+want)
			if s.ip() != want {
				t.Errorf("address %s, want %s", s.ip(), want)
			}
			pods = append(pods, s)
		}
		full := &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "full", Uid: "full"}}
		if _, err := r.RunPodSandbox(t.Context(), full, ""); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("sandbox without a free address: %v", err)
		}
		if err := r.StopPodSandbox(t.Context(), pods[2].id); err != nil {
			t.Fatal(err)
		}
		if ip := newSandbox(t, r, "again").ip(); ip != "10.1.0.4" {
			t.Errorf("the address is %s, want the released 10.1.0.4", ip)
		}
	})
}

// TestAddressesForMoreThanOneSubnet checks that the loopback network has addresses for more pods than one subnet, and
// that it allocates released addresses again.
func TestAddressesForMoreThanOneSubnet(t *testing.T) {
	t.Parallel()
	r := fake.New(fake.Config{Loopback: true})
	t.Cleanup(func() { r.Close() })
	seen := map[string]bool{}
	var first *sandbox
	for n := range 600 {
		s := newSandbox(t, r, fmt.Sprint("pod-", n))
		if seen[s.ip()] {
			t.Fatalf("address %s was allocated twice", s.ip())
		}
		seen[s.ip()] = true
		if n == 0 {
			first = s
		}
	}
	came := first.ip()
	if err := r.StopPodSandbox(t.Context(), first.id); err != nil {
		t.Fatal(err)
	}
	for n := 0; newSandbox(t, r, fmt.Sprint("more-", n)).ip() != came; n++ {
		if n > 2*256 {
			t.Fatalf("the released address %s is not allocated again", came)
		}
	}
}

// TestSamePort checks that two pods can listen on the same port, but not two containers of a pod.
func TestSamePort(t *testing.T) {
	bubble(t, fake.Config{}, func(t *testing.T, r *fake.Runtime) {
		a, b := newSandbox(t, r, "a"), newSandbox(t, r, "b")
		a.run("web")
		b.run("web")
		synctest.Wait()
		second := &cri.ContainerConfig{Metadata: &cri.ContainerMetadata{Name: "second"}, Image: &cri.ImageSpec{Image: "web"}}
		id, err := r.CreateContainer(t.Context(), a.id, second, a.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if state, code, _ := a.state(id); state != cri.ContainerState_CONTAINER_EXITED || code != 1 {
			t.Errorf("second server: %v, code %d", state, code)
		}
		if err := r.StopContainer(t.Context(), a.firstOf("main"), time.Second); err != nil {
			t.Fatal(err)
		}
		second.Metadata.Attempt = 1
		if id, err = r.CreateContainer(t.Context(), a.id, second, a.config); err != nil {
			t.Fatal(err)
		}
		if err := r.StartContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if state, _, _ := a.state(id); state != cri.ContainerState_CONTAINER_RUNNING {
			t.Errorf("after the stop of the first server, the second is %v", state)
		}
	})
}

func (s *sandbox) firstOf(name string) string {
	s.Helper()
	list, err := s.ListContainers(s.Context(), &cri.ContainerFilter{PodSandboxId: s.id})
	if err != nil {
		s.Fatal(err)
	}
	for _, c := range list {
		if c.Metadata.Name == name {
			return c.Id
		}
	}
	s.Fatalf("no container %s", name)
	return ""
}
