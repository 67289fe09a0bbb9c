package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

// TestOutdated tests which pods a rolling update deletes at once. Each letter is a pod, from ordinal 0 on: o is
// available and has the old template, u is available and has the new template; O and U are the same but not available;
// y has the old template and has not been ready for minReadySeconds; T is terminating; . does not exist.
func TestOutdated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pods      string
		partition int32
		limit     string
		want      string // ordinals in the order of their deletion
	}{
		{"ooo", 0, "1", "2"},
		{"ooo", 0, "2", "2 1"},
		{"ooo", 0, "5", "2 1 0"},
		{"oooooo", 0, "50%", "5 4 3"},
		{"ooo", 0, "10%", "2"}, // rounded down, but at least 1
		{"uuu", 0, "1", ""},
		{"ooo", 1, "3", "2 1"},
		{"ooo", 3, "3", ""},
		{"ooo", 7, "1", ""}, // a partition above all replicas keeps them
		{"uou", 0, "1", "1"},

		// Unavailable pods count towards maxUnavailable at any ordinal.
		{"oou", 0, "1", "1"},
		{"ooU", 0, "1", ""},
		{"ooU", 0, "2", "1"},
		{"oo.", 0, "1", ""},
		{"oo.", 0, "2", "1"},
		{"ooT", 0, "1", ""},
		{"ooT", 0, "2", "1"},
		{"oTo", 0, "2", "2"},
		{"oOooo", 2, "1", ""},
		{"oOooo", 2, "2", "4"},
		{"oyooo", 2, "1", ""},

		// Unavailable pods with the old template are deleted without waiting.
		{"O", 0, "1", "0"},
		{"ooO", 0, "1", "2"},
		{"oooOO", 0, "2", "4 3"},
		{"ooooO", 2, "1", "4"},
		{"ooOoo", 2, "1", "2"},
		{"oooOO", 3, "2", "4 3"},
		{"oOooO", 3, "2", "4"},
		{"OOoo", 0, "2", "1 0"},
		{"OOooo", 0, "3", "4 1 0"},
		{"ooy", 0, "1", "2"},
		{"oooOT", 0, "3", "3 2"},
		{"oooTO", 0, "3", "4 2"},
		{"OOO", 0, "1", "2 1 0"},
	} {
		t.Run(fmt.Sprintf("%s/%d/%s", c.pods, c.partition, c.limit), func(t *testing.T) {
			set, now := db(int32(len(c.pods)), rolling(c.partition, c.limit)), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			set.Spec.MinReadySeconds = 30
			st := &syncState{set: set, update: &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, now: now}
			for i, letter := range c.pods {
				st.replicas = append(st.replicas, &replica{ordinal: i, pod: lettered(letter, i, now)})
			}
			var got []string
			for _, rep := range st.outdated() {
				got = append(got, fmt.Sprint(rep.ordinal))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("%q, want %q", text, c.want)
			}
		})
	}
}

// lettered returns the pod for a letter of TestOutdated.
func lettered(letter rune, ordinal int, now time.Time) *corev1.Pod {
	if letter == '.' {
		return nil
	}
	p := apitest.Pod("default", fmt.Sprint("db-", ordinal))
	p.Labels = map[string]string{appsv1.StatefulSetRevisionLabel: "old"}
	if strings.ContainsRune("uU", letter) {
		p.Labels[appsv1.StatefulSetRevisionLabel] = "new"
	}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}
	p.Status.Phase = corev1.PodRunning
	switch letter {
	case 'T':
		p.DeletionTimestamp = new(metav1.NewTime(now))
	case 'y':
		ready.LastTransitionTime = metav1.NewTime(now.Add(-10 * time.Second))
	case 'O', 'U':
		ready.Status = corev1.ConditionFalse
	}
	p.Status.Conditions = []corev1.PodCondition{ready}
	return p
}

// With OrderedReady an update deletes maxUnavailable pods at a time, as with Parallel, but creates them one after the
// other, the lowest ordinal first.
func TestMaxUnavailableOrdered(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(4, rolling(1, "2")))
		apitest.Settle(time.Second)
		c.start("db-0", "db-1", "db-2", "db-3")
		c.image("v2")
		c.want("two at a time", "0:v1+ 1:v1+ 2:v1- 3:v1-")
		c.end("db-3")
		c.want("the lowest first", "0:v1+ 1:v1+ 2:v1-")
		c.end("db-2")
		c.want("one after the other", "0:v1+ 1:v1+ 2:v2")
		c.start("db-2")
		c.want("the next one is created before the update continues", "0:v1+ 1:v1+ 2:v2+ 3:v2")
		c.start("db-3")
		c.want("the update continues", "0:v1+ 1:v1- 2:v2+ 3:v2+")
		c.end("db-1")
		c.start("db-1")
		c.want("down to the partition", "0:v1+ 1:v2+ 2:v2+ 3:v2+")
		c.wantStatus("partition", "4/4/4/1/3", false)
	})
}

// A pod of an old revision that does not become ready is replaced with Parallel, and blocks the update with
// OrderedReady.
func TestStuckRollout(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*appsv1.StatefulSet)
		want   string
	}{
		"ordered":  {rolling(0, "1"), "0:v1+ 1:v1+ 2:v2"},
		"parallel": {func(set *appsv1.StatefulSet) { parallel(set); rolling(0, "1")(set) }, "0:v1+ 1:v1+ 2:v3"},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, cl cluster) {
				cl.Create(db(3, c.change))
				apitest.Settle(time.Second)
				cl.ready("db-0", "db-1", "db-2")
				cl.image("v2")
				cl.want("begun", "0:v1+ 1:v1+ 2:v2")
				cl.image("v3")
				cl.want("repaired", c.want)
			})
		})
	}
}

// The controller scales before it updates. A new pod has the new template if its ordinal is at least the partition,
// otherwise the old one.
func TestScaleDuringUpdate(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(3, rolling(2, "1")))
		apitest.Settle(time.Second)
		c.start("db-0", "db-1", "db-2")
		c.change(func(set *appsv1.StatefulSet) {
			set.Spec.Replicas, set.Spec.Template.Spec.Containers[0].Image = new(int32(4)), "v2"
		})
		c.want("up first, with the new template", "0:v1+ 1:v1+ 2:v1+ 3:v2")
		c.start("db-3")
		c.want("then the update", "0:v1+ 1:v1+ 2:v1- 3:v2+")
		c.end("db-2")
		c.start("db-2")
		c.wantStatus("partition", "4/4/4/2/2", false)
		c.scale(1)
		c.want("down, the highest first", "0:v1+ 1:v1+ 2:v2+ 3:v2-")
		c.end("db-3")
		c.end("db-2")
		c.end("db-1")
		c.scale(2)
		c.want("below the partition the old template", "0:v1+ 1:v1")
	})
}

// The update revision becomes the current revision with RollingUpdate when all pods have it, with OnDelete never.
func TestCurrentRevision(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2, parallel, onDelete))
		apitest.Settle(time.Second)
		c.ready("db-0", "db-1")
		first := c.set().Status.CurrentRevision
		c.image("v2")
		for _, p := range []string{"db-0", "db-1"} {
			c.Delete(c.pod(p), "")
			apitest.Settle(time.Second)
			c.ready(p)
		}
		c.wantStatus("OnDelete", "2/2/2/0/2", false)
		if got := c.set().Status.CurrentRevision; got != first {
			t.Errorf("current revision %s, want %s", got, first)
		}
		c.change(rolling(0, "1"))
		c.wantStatus("RollingUpdate", "2/2/2/2/2", true)
	})
}

// If the name of a revision is in use, status.collisionCount increases, and the revision gets another name.
func TestCollisions(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1))
		apitest.Settle(time.Second)
		first := apitest.List[*appsv1.ControllerRevision](c.API, "default")[0]
		c.Delete(db(0), metav1.DeletePropagationOrphan)
		apitest.Settle(time.Second)
		apitest.Change(c.API, first, "", func(r *appsv1.ControllerRevision) {
			r.OwnerReferences, r.Labels = nil, map[string]string{"app": "other"}
		})
		c.Create(db(1))
		apitest.Settle(time.Second)
		s := c.set().Status
		if s.CollisionCount == nil || *s.CollisionCount != 1 || s.UpdateRevision == first.Name || s.UpdateRevision == "" {
			t.Errorf("status %+v with revision %s", s, first.Name)
		}
	})
}

// The controller keeps the newest revisionHistoryLimit old revisions. An undo gives the old revision a new number.
func TestHistory(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1, func(set *appsv1.StatefulSet) { set.Spec.RevisionHistoryLimit = new(int32(2)) }))
		apitest.Settle(time.Second)
		c.ready("db-0")
		wantNumbers := func(what string, want ...int64) {
			t.Helper()
			var got []int64
			for _, r := range apitest.List[*appsv1.ControllerRevision](c.API, "default") {
				got = append(got, r.Revision)
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("%s: revisions %v, want %v", what, got, want)
			}
		}
		for _, image := range []string{"v2", "v3", "v4", "v5"} {
			c.image(image)
			c.ready("db-0")
		}
		wantNumbers("five templates", 3, 4, 5)
		c.image("v4")
		c.ready("db-0")
		wantNumbers("undone", 3, 5, 6)
		c.image("v4")
		wantNumbers("the same template", 3, 5, 6)
		c.scale(2)
		wantNumbers("scaled", 3, 5, 6)
	})
}
