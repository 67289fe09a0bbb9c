package deployment

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestProgress tests the condition Progressing and the time of the next sync, for a Deployment of 4 replicas with a
// deadline of a minute.
func TestProgress(t *testing.T) {
	t.Parallel()
	counts := func(updated, all, ready, available int32) appsv1.DeploymentStatus {
		return appsv1.DeploymentStatus{UpdatedReplicas: updated, Replicas: all, ReadyReplicas: ready,
			AvailableReplicas: available}
	}
	for name, c := range map[string]struct {
		was    string // the previous reason of Progressing
		since  time.Duration
		from   appsv1.DeploymentStatus
		to     appsv1.DeploymentStatus
		paused bool
		want   string
		again  time.Duration
	}{
		"no condition": {"", 0, counts(0, 0, 0, 0), counts(0, 0, 0, 0), false, "", 0},
		"created": {reasonCreated, time.Second, counts(0, 0, 0, 0), counts(0, 0, 0, 0), false,
			reasonCreated, 59 * time.Second},
		"new pods": {reasonCreated, time.Second, counts(0, 4, 4, 4), counts(1, 5, 4, 4), false,
			reasonUpdated, time.Minute},
		"fewer old pods": {reasonUpdated, time.Second, counts(1, 5, 4, 4), counts(1, 4, 3, 3), false,
			reasonUpdated, time.Minute},
		"more are ready": {reasonUpdated, time.Second, counts(1, 4, 3, 3), counts(1, 4, 4, 3), false,
			reasonUpdated, time.Minute},
		"more are available": {reasonUpdated, time.Second, counts(1, 4, 4, 3), counts(1, 4, 4, 4), false,
			reasonUpdated, time.Minute},
		"no progress": {reasonUpdated, 59 * time.Second, counts(1, 4, 4, 4), counts(1, 4, 4, 4), false,
			reasonUpdated, time.Second},
		"no progress until the deadline": {reasonUpdated, time.Minute, counts(1, 4, 4, 4), counts(1, 4, 4, 4), false,
			reasonTimedOut, 0},
		"fewer are ready, until the deadline": {reasonUpdated, time.Minute, counts(1, 4, 4, 4), counts(1, 4, 2, 2), false,
			reasonTimedOut, 0},
		"timed out": {reasonTimedOut, time.Hour, counts(1, 4, 4, 4), counts(1, 4, 4, 4), false, reasonTimedOut, 0},
		"timed out, then a new pod": {reasonTimedOut, time.Hour, counts(1, 4, 4, 4), counts(2, 4, 4, 4), false,
			reasonUpdated, time.Minute},
		"complete": {reasonUpdated, time.Second, counts(4, 5, 5, 5), counts(4, 4, 4, 4), false, reasonAvailable, 0},
		"complete after the deadline": {reasonTimedOut, time.Hour, counts(4, 4, 4, 3), counts(4, 4, 4, 4), false,
			reasonAvailable, 0},
		"pods fail after completion": {reasonAvailable, time.Hour, counts(4, 4, 4, 4), counts(4, 4, 0, 0), false,
			reasonAvailable, 0},
		"pods recover": {reasonAvailable, time.Hour, counts(4, 4, 0, 0), counts(4, 4, 4, 4), false, reasonAvailable, 0},
		"rolled back long after completion": {reasonAvailable, time.Hour, counts(4, 4, 4, 4), counts(0, 4, 4, 4), false,
			reasonAvailable, 0},
		"create error, until the deadline": {reasonCreateError, time.Hour, counts(0, 4, 4, 4), counts(0, 4, 4, 4), false,
			reasonTimedOut, 0},
		"resumed": {reasonResumed, time.Second, counts(1, 4, 4, 4), counts(1, 4, 4, 4), false,
			reasonResumed, 59 * time.Second},
		"paused": {reasonPaused, time.Hour, counts(1, 4, 4, 4), counts(1, 4, 4, 4), true, reasonPaused, 0},
	} {
		d := web(4)
		d.Spec.ProgressDeadlineSeconds, d.Spec.Paused = new(int32(60)), c.paused
		d.Status = c.from
		if c.was != "" {
			at, status := metav1.NewTime(noon.Add(-c.since)), corev1.ConditionTrue
			if c.was == reasonTimedOut {
				status = corev1.ConditionFalse
			}
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status,
				Reason: c.was, LastUpdateTime: at, LastTransitionTime: at}}
		}
		ro := newRollout(d, nil)
		c.to.Conditions = ro.d.Status.Conditions
		ro.d.Status = c.to
		if !c.paused {
			ro.progress(noon)
		}
		got := conditionOf(&ro.d.Status, appsv1.DeploymentProgressing)
		if got == nil {
			got = &appsv1.DeploymentCondition{}
		}
		if got.Reason != c.want {
			t.Errorf("%s: %q, want %q", name, got.Reason, c.want)
		}
		if moved := got.LastUpdateTime.Time.Equal(noon); moved != (c.want != c.was || c.want == reasonUpdated &&
			c.again == time.Minute) {
			t.Errorf("%s: updated at %v", name, got.LastUpdateTime)
		}
		if kept := got.LastTransitionTime.Time.Equal(noon.Add(-c.since)); c.was != "" &&
			kept != (c.was == reasonTimedOut == (c.want == reasonTimedOut)) {
			t.Errorf("%s: transition at %v", name, got.LastTransitionTime)
		}
		if again := untilDeadline(ro.d, noon); again != c.again {
			t.Errorf("%s: next sync in %v, want %v", name, again, c.again)
		}
	}
}
