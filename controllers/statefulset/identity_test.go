package statefulset

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

// The controller restores the labels pod-name and pod-index of a pod, and keeps those of users.
func TestLabelsAreRestored(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1))
		apitest.Settle(time.Second)
		for _, label := range []string{appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel} {
			for _, value := range []string{"", "wrong"} {
				want := c.pod("db-0").Labels[label]
				apitest.Change(c.API, c.pod("db-0"), "", func(p *corev1.Pod) {
					p.Labels["user"], p.Labels[label] = "label", value
					if value == "" {
						delete(p.Labels, label)
					}
				})
				apitest.Settle(time.Second)
				if got := c.pod("db-0").Labels; got[label] != want || got["user"] != "label" {
					t.Errorf("%s=%q: labels %v", label, value, got)
				}
			}
		}
	})
}

// A pod that loses the selector's labels is released. Because its name is in use, the set creates a successor only when
// the released pod is deleted.
func TestReleasedPodKeepsItsName(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2))
		apitest.Settle(time.Second)
		c.ready("db-0")
		first := c.pod("db-0")
		apitest.Change(c.API, first, "", func(p *corev1.Pod) { p.Labels["app"] = "other" })
		apitest.Settle(10 * time.Second)
		if p := c.pod("db-0"); p.UID != first.UID || metav1.GetControllerOf(p) != nil {
			t.Errorf("pod %+v", p.ObjectMeta)
		}
		c.Delete(c.pod("db-0"), "")
		apitest.Settle(20 * time.Minute)
		if p := c.pod("db-0"); p.UID == first.UID || !metav1.IsControlledBy(p, c.set()) {
			t.Errorf("pod %+v", p.ObjectMeta)
		}
	})
}

// The controller adopts orphans with a name and the labels of the set. It ignores pods with another name or owner.
func TestAdoption(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		labels := map[string]string{"app": "db"}
		owner := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "other", UID: "other",
			Controller: new(true)}}
		c.Create(db(0, stranger))
		stored, _ := apitest.Get[*appsv1.StatefulSet](c.API, "default", "other")
		owner[0].UID = stored.UID
		c.Create(
			apitest.Pod("default", "db-0", func(p *corev1.Pod) { p.Labels = labels }),
			apitest.Pod("default", "db-x", func(p *corev1.Pod) { p.Labels = labels }),
			apitest.Pod("default", "db-7", func(p *corev1.Pod) { p.Labels, p.OwnerReferences = labels, owner }),
			apitest.Pod("default", "db-8", func(p *corev1.Pod) { p.Labels = labels }),
		)
		c.Create(db(1))
		apitest.Settle(time.Second)
		if p := c.pod("db-0"); !metav1.IsControlledBy(p, c.set()) || p.Labels[appsv1.PodIndexLabel] != "0" {
			t.Errorf("db-0 was not adopted: %+v", p.ObjectMeta)
		}
		if p := c.pod("db-x"); metav1.GetControllerOf(p) != nil {
			t.Errorf("db-x was adopted: %+v", p.ObjectMeta)
		}
		if p := c.pod("db-7"); p.OwnerReferences[0].UID != stored.UID || p.DeletionTimestamp != nil {
			t.Errorf("db-7: %+v", p.ObjectMeta)
		}
		c.ready("db-0")
		if _, ok := apitest.Get[*corev1.Pod](c.API, "default", "db-8"); ok {
			t.Error("the surplus pod db-8 was not deleted")
		}
	})
}

// Finished pods are replaced, regardless of their exit code and of the pod management policy.
func TestFinishedPodsAreReplaced(t *testing.T) {
	for name, change := range map[string]func(*appsv1.StatefulSet){"ordered": func(*appsv1.StatefulSet) {},
		"parallel": parallel} {
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			t.Run(name+"/"+string(phase), func(t *testing.T) {
				within(t, func(t *testing.T, c cluster) {
					c.Create(db(2, change))
					apitest.Settle(time.Second)
					c.ready("db-0", "db-1")
					uid := c.pod("db-1").UID
					c.Phase(c.pod("db-1"), phase, false)
					apitest.Settle(time.Second)
					c.want("replaced", "0:v1+ 1:v1")
					if c.pod("db-1").UID == uid {
						t.Error("the pod was not replaced")
					}
				})
			})
		}
	}
}

// When ordinals.start changes, the pods of new ordinals are created before those of old ordinals are deleted.
func TestStartMoves(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2))
		apitest.Settle(time.Second)
		c.start("db-0", "db-1")
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 2} })
		c.want("new ordinals first", "0:v1+ 1:v1+ 2:v1")
		c.start("db-2")
		c.start("db-3")
		c.want("then old ordinals, the highest first", "0:v1+ 1:v1- 2:v1+ 3:v1+")
		c.end("db-1")
		c.want("one after the other", "0:v1- 2:v1+ 3:v1+")
		c.end("db-0")
		c.wantStatus("moved", "2/2/2/2/2", true)
		if got := c.pod("db-3").Labels[appsv1.PodIndexLabel]; got != "3" {
			t.Errorf("pod index %q", got)
		}
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Ordinals = nil })
		c.want("back", "0:v1 2:v1+ 3:v1+")
	})
}

// stranger gives a set another name and selector.
func stranger(set *appsv1.StatefulSet) {
	set.Name, set.Spec.Selector = "other", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
}

// With any retention policy, a claim that another object controls keeps its owner. A claim with an owner that is not a
// controller keeps it, and the set becomes an additional owner.
func TestClaimsOfOthers(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		for i, controls := range []bool{true, false} {
			owner := apitest.Pod("default", "owner")
			if i == 0 {
				c.Create(owner)
			}
			stored := c.pod("owner")
			claim := db(1, claims(keep, keep)).Spec.VolumeClaimTemplates[0].DeepCopy()
			claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
			claim.Namespace, claim.Name = "default", []string{"data-db-0", "data-db-1"}[i]
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "owner", UID: stored.UID,
				Controller: &controls}}
			c.Create(claim)
		}
		c.Create(db(2, parallel, claims(remove, remove)))
		apitest.Settle(time.Second)
		c.wantClaims("policies", "data-db-0<Pod data-db-1<Pod<StatefulSet")
	})
}

// TestRetentionPolicies tests all four combinations, for a set that is scaled down and then deleted.
func TestRetentionPolicies(t *testing.T) {
	for name, p := range map[string]struct {
		whenDeleted, whenScaled          appsv1.PersistentVolumeClaimRetentionPolicyType
		created, scaling, scaled, atLast string
	}{
		"Retain Retain": {keep, keep, "data-db-0 data-db-1", "data-db-0 data-db-1", "data-db-0 data-db-1",
			"data-db-0 data-db-1"},
		"Retain Delete": {keep, remove, "data-db-0 data-db-1", "data-db-0 data-db-1<Pod", "data-db-0", "data-db-0"},
		"Delete Retain": {remove, keep, "data-db-0<StatefulSet data-db-1<StatefulSet",
			"data-db-0<StatefulSet data-db-1<StatefulSet", "data-db-0<StatefulSet data-db-1<StatefulSet", ""},
		"Delete Delete": {remove, remove, "data-db-0<StatefulSet data-db-1<StatefulSet",
			"data-db-0<StatefulSet data-db-1<Pod", "data-db-0<StatefulSet", ""},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T, c cluster) {
				c.Create(db(2, claims(p.whenDeleted, p.whenScaled)))
				apitest.Settle(time.Second)
				c.start("db-0", "db-1")
				c.wantClaims("created", p.created)
				c.scale(1)
				c.wantClaims("scaling", p.scaling)
				c.end("db-1")
				c.wantClaims("scaled", p.scaled)
				c.Delete(db(0), "")
				apitest.Settle(time.Second)
				c.end("db-0")
				c.wantClaims("deleted", p.atLast)
			})
		})
	}
}
