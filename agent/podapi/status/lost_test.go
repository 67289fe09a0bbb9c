package status_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"monopod/agent/podapi/status"
)

// The status of a terminated pod has a final state for each container, in the order of the spec.
func TestStatesOfTerminatedPod(t *testing.T) {
	t.Parallel()
	side := corev1.Container{Name: "i", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	one, two := corev1.Container{Name: "i"}, corev1.Container{Name: "j"}
	created := status.Container{ID: "a-id", Name: "a"}
	const lost, waits, ended = "ContainerStatusUnknown 137", "PodInitializing", "Error 1"
	for name, c := range map[string]struct {
		pod         *corev1.Pod
		seen        *status.Observed
		init, other []string
	}{
		"never started": {pod(always, "a", "b"), &status.Observed{}, nil, []string{lost, lost}},
		"with init containers": {withInit(pod(always, "a"), one, two), &status.Observed{}, []string{lost, waits},
			[]string{waits}},
		"with a sidecar": {withInit(pod(always, "a"), side), seen(), []string{lost}, []string{waits}},
		"created":        {pod(always, "a", "b"), seen(created), nil, []string{lost, lost}},
		"one of two ran": {pod(always, "a", "b"), seen(exited("a", 0, 1)), nil, []string{ended, lost}},
		"init container failed": {withInit(pod(never, "a"), one, two), seen(exited("i", 0, 1)), []string{ended, waits},
			[]string{waits}},
		"first init container removed": {withInit(pod(never, "a"), one, two), seen(exited("j", 0, 1)), []string{lost, ended},
			[]string{waits}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := status.Input{Pod: c.pod, Observed: c.seen, Terminal: true, Now: at(0)}
			c.pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}},
			}
			got := status.Of(in)
			check := func(list []corev1.ContainerStatus, want ...string) {
				t.Helper()
				for i, s := range list {
					if s.Ready || s.Started != nil && *s.Started || what(s.State) != want[i] {
						t.Errorf("%s: %s, want %s", s.Name, what(s.State), want[i])
					}
				}
				if len(list) != len(want) {
					t.Errorf("%d statuses, want %d", len(list), len(want))
				}
			}
			check(got.InitContainerStatuses, c.init...)
			check(got.ContainerStatuses, c.other...)
			check(got.EphemeralContainerStatuses, lost)
			if got.Phase != corev1.PodFailed {
				t.Errorf("phase %s", got.Phase)
			}
			initialized := status.Condition(got.Conditions, corev1.PodInitialized).Status
			c.pod.Status = got
			again := status.Of(in)
			if !apiequality.Semantic.DeepEqual(&got, &again) {
				t.Errorf("the second status differs:\n%+v\n%+v", got, again)
			}
			if want := corev1.ConditionStatus(map[bool]string{true: "True",
				false: "False"}[len(c.pod.Spec.InitContainers) == 0]); initialized != want {
				t.Errorf("Initialized is %s", initialized)
			}
		})
	}
}

// what formats a state.
func what(s corev1.ContainerState) string {
	switch {
	case s.Terminated != nil && s.Terminated.ExitCode == 137:
		return s.Terminated.Reason + " 137"
	case s.Terminated != nil:
		return s.Terminated.Reason + " 1"
	case s.Waiting != nil:
		return s.Waiting.Reason
	}
	return "running"
}

// Clients subtract startedAt from finishedAt, so either both are set or neither.
func TestFinishedAtImpliesStartedAt(t *testing.T) {
	t.Parallel()
	c := status.Container{
		ID:         "x",
		Name:       "a",
		State:      status.Exited,
		ExitCode:   128,
		Reason:     "StartError",
		CreatedAt:  at(1),
		FinishedAt: at(3),
	}
	older := c
	older.ID, older.Attempt, older.FinishedAt = "w", 0, at(2)
	c.Attempt = 1
	for _, p := range []*corev1.Pod{pod(always, "a"), withInit(pod(always, "b"), corev1.Container{Name: "a"})} {
		got := status.Of(status.Input{Pod: p, Observed: seen(c, older), Now: at(5)})
		list := slices.Concat(got.InitContainerStatuses, got.ContainerStatuses)
		for _, end := range []*corev1.ContainerStateTerminated{list[0].State.Terminated,
			list[0].LastTerminationState.Terminated} {
			if end.StartedAt.IsZero() || !end.StartedAt.Equal(&end.FinishedAt) {
				t.Errorf("started at %v, finished at %v, want the same time", end.StartedAt, end.FinishedAt)
			}
		}
	}
}

// A lost container has the reason ContainerStatusUnknown, unless it has already exited.
func TestMarkLost(t *testing.T) {
	t.Parallel()
	c := running("a", 0)
	c.MarkLost(at(9))
	if c.State != status.Exited || c.Reason != "ContainerStatusUnknown" || c.ExitCode != 137 ||
		!c.FinishedAt.Equal(at(9)) {
		t.Errorf("the lost container is %+v", c)
	}
	ended := exited("a", 0, 3)
	if ended.MarkLost(time.Now()); ended.ExitCode != 3 {
		t.Errorf("MarkLost changed an exited container: %+v", ended)
	}
}
