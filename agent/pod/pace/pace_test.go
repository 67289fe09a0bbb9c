package pace_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/pod/pace"
	"monopod/agent/podapi/status"
)

func TestFailuresAndPanicsBackOff(t *testing.T) {
	t.Parallel()
	var p pace.Pace
	after := func(what func()) int {
		p.Step()
		what()
		return int(p.Retry() / time.Second)
	}
	var failed, panicked []int
	for range 6 {
		failed = append(failed, after(p.Failed))
	}
	for range 11 {
		panicked = append(panicked, after(p.Panicked))
	}
	if !slices.Equal(failed, []int{1, 2, 4, 8, 10, 10}) ||
		!slices.Equal(panicked, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}) {
		t.Errorf("backoff of failures: %v, of panics: %v", failed, panicked)
	}
	if !p.Panicking() || !p.ResetPanics() || p.ResetPanics() {
		t.Error("Panicking must be true, and only the first ResetPanics may return true")
	}
	p.Succeeded()
	if got := after(p.Failed); got != 1 {
		t.Errorf("the backoff after a success is %d s, want 1", got)
	}
}

func TestEarliestRetryDecides(t *testing.T) {
	t.Parallel()
	var p pace.Pace
	for _, d := range []time.Duration{time.Minute, time.Second, time.Hour} {
		p.RetryIn(d)
	}
	if p.Retry() != time.Second {
		t.Error("retry in ", p.Retry())
	}
	if p.RetryIn(0); p.Retry() != time.Millisecond { // never 0, so that other workers can run
		t.Error("retry in ", p.Retry())
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	var p pace.Pace
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}},
		Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
	p.WaitAll(pod, status.Waiting{Reason: pace.Creating(pod)}, func(c string) bool { return c == "b" })
	other := errors.New("other")
	if err := p.Blocked("a",
		&pace.Blocked{Waiting: status.Waiting{Reason: "CrashLoopBackOff"}, Retry: time.Minute}); err != nil {
		t.Error(err)
	}
	if err := p.Blocked("b", other); !errors.Is(err, other) {
		t.Error(err)
	}
	w := p.Waiting()
	if len(w) != 2 || w["i"].Reason != "PodInitializing" || w["a"].Reason != "CrashLoopBackOff" ||
		p.Retry() != time.Minute {
		t.Errorf("waiting: %v, retry in %v", w, p.Retry())
	}
	if p.Started("a"); len(p.Waiting()) != 1 {
		t.Error("waiting after a start: ", p.Waiting())
	}
}

// A name in use counts as a failure after five attempts; an unavailable runtime never does.
func TestUndecided(t *testing.T) {
	t.Parallel()
	var p pace.Pace
	taken, away := grpcstatus.Error(codes.AlreadyExists, "name"), grpcstatus.Error(codes.Unavailable, "away")
	for i := range 8 {
		if got := p.Undecided(taken); got != (i < 5) || !p.Undecided(away) || p.Undecided(errors.New("other")) ||
			p.Undecided(nil) {
			t.Errorf("after %d failures: undecided %v", i, got)
		}
		p.Failed()
	}
}
