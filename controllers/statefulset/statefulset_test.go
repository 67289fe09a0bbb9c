package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/garbagecollector"
	"monopod/controllers/internal/apitest"
	"monopod/controllers/protection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func db(n int32, change ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: appsv1.StatefulSetSpec{Replicas: &n, ServiceName: "svc", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
			}},
	}
	for _, f := range change {
		f(set)
	}
	return set
}

func parallel(set *appsv1.StatefulSet) {
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
}

func onDelete(set *appsv1.StatefulSet) {
	set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
}

func rolling(partition int32, unavailable string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		u := intstr.Parse(unavailable)
		set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType,
			RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: &partition, MaxUnavailable: &u}}
	}
}

// claims adds the claim template "data" and a retention policy to a set.
func claims(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"own": "label"}},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}},
		}}
		set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: whenDeleted, WhenScaled: whenScaled}
	}
}

const (
	keep   = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
)

// cluster is an API with the controller and the garbage collector.
type cluster struct {
	*apitest.API
	t *testing.T
}

// within runs a test in virtual time against running controllers.
func within(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		deps := api.Deps()
		api.Run(garbagecollector.New(deps, &apitest.Events{}, garbagecollector.Config{Kinds: apitest.Kinds()}))
		api.Run(protection.NewClaims(deps))
		deps, listed := api.Listed(deps)
		api.Run(New(deps, &api.Events, Config{}))
		test(t, cluster{api, t})
		listed()
	})
}

func (c cluster) set() *appsv1.StatefulSet {
	c.t.Helper()
	return apitest.Existing[*appsv1.StatefulSet](c.API, "default", "db")
}

func (c cluster) change(f func(*appsv1.StatefulSet)) {
	c.t.Helper()
	apitest.Change(c.API, db(0), "", f)
	apitest.Settle(time.Second)
}

func (c cluster) image(name string) {
	c.t.Helper()
	c.change(func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[0].Image = name })
}

func (c cluster) scale(n int32) {
	c.t.Helper()
	c.change(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n })
}

func (c cluster) pod(name string) *corev1.Pod {
	c.t.Helper()
	return apitest.Existing[*corev1.Pod](c.API, "default", name)
}

// ready makes pods ready.
func (c cluster) ready(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.Phase(c.pod(name), corev1.PodRunning, true)
		apitest.Settle(time.Second)
	}
}

// start binds pods to a node and makes them ready. A bound pod that is deleted terminates until end is called.
func (c cluster) start(names ...string) {
	c.t.Helper()
	for _, name := range names {
		apitest.Change(c.API, c.pod(name), "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		c.ready(name)
	}
}

// end finishes the deletion of pods.
func (c cluster) end(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.EndPod(c.pod(name))
		apitest.Settle(time.Second)
	}
}

// want compares the pods as ORDINAL:IMAGE: - marks a terminating pod, + a running one: "0:v1 1:v2- 2:v2+".
func (c cluster) want(what, want string) {
	c.t.Helper()
	var got []string
	for _, p := range apitest.List[*corev1.Pod](c.API, "default") {
		text := strings.TrimPrefix(p.Name, "db-") + ":" + p.Spec.Containers[0].Image
		switch {
		case p.DeletionTimestamp != nil:
			text += "-"
		case p.Status.Phase == corev1.PodRunning:
			text += "+"
		}
		got = append(got, text)
	}
	slices.Sort(got)
	if text := strings.Join(got, " "); text != want {
		c.t.Fatalf("%s: pods %q, want %q", what, text, want)
	}
}

// wantStatus compares replicas/ready/available/current/updated.
func (c cluster) wantStatus(what, want string, done bool) {
	c.t.Helper()
	s := c.set().Status
	got := fmt.Sprintf("%d/%d/%d/%d/%d", s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas,
		s.UpdatedReplicas)
	if got != want || (s.CurrentRevision == s.UpdateRevision) != done || s.ObservedGeneration != c.set().Generation ||
		s.CollisionCount == nil {
		c.t.Errorf("%s: status %s, %+v, want %s", what, got, s, want)
	}
}

func TestOrderedScaling(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(3, func(set *appsv1.StatefulSet) { set.Spec.MinReadySeconds = 5 }))
		apitest.Settle(time.Second)
		c.want("the first", "0:v1")
		p := c.pod("db-0")
		if p.Spec.Hostname != "db-0" || p.Spec.Subdomain != "svc" ||
			p.Labels["statefulset.kubernetes.io/pod-name"] != "db-0" || p.Labels["apps.kubernetes.io/pod-index"] != "0" ||
			p.Labels["controller-revision-hash"] != c.set().Status.UpdateRevision || !metav1.IsControlledBy(p, c.set()) {
			t.Errorf("pod %+v %+v", p.ObjectMeta, p.Spec)
		}
		c.ready("db-0")
		c.want("ready, not yet available", "0:v1+")
		apitest.Settle(5 * time.Second)
		c.want("available", "0:v1+ 1:v1")
		c.wantStatus("the second", "2/1/1/2/2", true)
		c.ready("db-1")
		apitest.Settle(5 * time.Second)
		c.start("db-2")
		apitest.Settle(5 * time.Second)
		c.wantStatus("all", "3/3/3/3/3", true)

		c.scale(1)
		c.want("highest first", "0:v1+ 1:v1+ 2:v1-")
		c.end("db-2")
		c.want("ordinal 2 has ended", "0:v1+")
		c.Phase(c.pod("db-0"), corev1.PodFailed, false)
		apitest.Settle(time.Second)
		c.want("a failed pod is replaced", "0:v1")
		c.Delete(c.pod("db-0"), "")
		apitest.Settle(time.Second)
		c.want("a deleted pod is replaced", "0:v1")
		apitest.Change(c.API, c.pod("db-0"), "", func(p *corev1.Pod) { delete(p.Labels, "apps.kubernetes.io/pod-index") })
		apitest.Settle(time.Second)
		if c.pod("db-0").Labels["apps.kubernetes.io/pod-index"] != "0" {
			t.Error("the label pod-index was not restored")
		}
		if n := c.Events.Count(); n["SuccessfulCreate"] != 5 || n["SuccessfulDelete"] != 3 || n["SuccessfulUpdate"] != 1 {
			t.Errorf("events %v", n)
		}
	})
}

func TestOrderedScalingDownWaits(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(3, parallel))
		apitest.Settle(time.Second)
		c.ready("db-0")
		c.Delete(db(0), metav1.DeletePropagationOrphan)
		apitest.Settle(time.Second)
		c.Create(db(1))
		apitest.Settle(time.Second)
		c.want("waits until ordinal 1 is ready", "0:v1+ 1:v1 2:v1")
		c.ready("db-1")
		c.want("ordinals 2 and 1 deleted", "0:v1+")
	})
}

func TestRollingUpdate(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(3, rolling(1, "1")))
		apitest.Settle(time.Second)
		c.start("db-0", "db-1", "db-2")
		first := c.set().Status.CurrentRevision
		c.image("v2")
		c.want("the highest first", "0:v1+ 1:v1+ 2:v1-")
		c.wantStatus("begun", "3/3/3/2/0", false)
		c.end("db-2")
		c.want("replaced", "0:v1+ 1:v1+ 2:v2")
		c.start("db-2")
		c.want("the next", "0:v1+ 1:v1- 2:v2+")
		c.end("db-1")
		c.start("db-1")
		c.want("down to the partition", "0:v1+ 1:v2+ 2:v2+")
		c.wantStatus("partition", "3/3/3/1/2", false)
		c.Delete(c.pod("db-0"), "")
		c.end("db-0")
		c.want("below the partition the old revision is kept", "0:v1 1:v2+ 2:v2+")
		c.start("db-0")
		c.change(rolling(0, "1"))
		c.end("db-0")
		c.start("db-0")
		c.wantStatus("complete", "3/3/3/3/3", true)
		c.image("v1")
		if s := c.set().Status; s.UpdateRevision != first {
			t.Errorf("revision after the undo is %s, want %s", s.UpdateRevision, first)
		}
		c.end("db-2")
		apitest.Settle(time.Minute)
		c.want("a pod that does not become ready stops the update", "0:v2+ 1:v2+ 2:v1")
		c.image("v3")
		c.want("a repaired template does not replace the pod", "0:v2+ 1:v2+ 2:v1")
		c.Delete(c.pod("db-2"), "")
		apitest.Settle(time.Second)
		c.want("the pod is deleted by a user", "0:v2+ 1:v2+ 2:v3")
	})
}

func TestMaxUnavailable(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(4, parallel, rolling(0, "2")))
		apitest.Settle(time.Second)
		c.want("all at once", "0:v1 1:v1 2:v1 3:v1")
		c.start("db-0", "db-1", "db-2", "db-3")
		c.image("v2")
		c.want("two at a time", "0:v1+ 1:v1+ 2:v1- 3:v1-")
		c.end("db-2", "db-3")
		c.start("db-3")
		c.want("the next one when one is available", "0:v1+ 1:v1- 2:v2 3:v2+")
		c.end("db-1")
		c.image("v3") // db-1 and db-2 were never available
		c.want("unavailable pods are replaced at once", "0:v1+ 1:v3 2:v3 3:v2+")
		c.scale(0)
		c.want("all are deleted at once", "0:v1- 3:v2-")
		c.end("db-0", "db-3")
		c.wantStatus("none", "0/0/0/0/0", true)
	})
}

func TestOnDeleteAndOrdinals(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2, onDelete, parallel, func(set *appsv1.StatefulSet) {
			set.Spec.Ordinals, set.Spec.RevisionHistoryLimit = &appsv1.StatefulSetOrdinals{Start: 5}, new(int32(0))
		}))
		apitest.Settle(time.Second)
		c.ready("db-5", "db-6")
		c.image("v2")
		c.image("v3")
		c.want("nothing happens", "5:v1+ 6:v1+")
		if n := len(apitest.List[*appsv1.ControllerRevision](c.API, "default")); n != 2 {
			t.Errorf("%d revisions, want 2: those of the pods and of the template", n)
		}
		c.Delete(c.pod("db-6"), "")
		apitest.Settle(time.Second)
		c.want("deleted", "5:v1+ 6:v3")
		c.change(func(set *appsv1.StatefulSet) { set.Spec.Ordinals.Start = 6 })
		c.want("another start", "6:v3 7:v3")
	})
}

func (c cluster) claims() string {
	var out []string
	for _, claim := range apitest.List[*corev1.PersistentVolumeClaim](c.API, "default") {
		text := claim.Name
		for _, ref := range claim.OwnerReferences {
			text += "<" + ref.Kind
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (c cluster) wantClaims(what, want string) {
	c.t.Helper()
	if got := c.claims(); got != want {
		c.t.Errorf("%s: claims %q, want %q", what, got, want)
	}
}

func TestClaimsAreKept(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2, parallel, claims(keep, keep)))
		apitest.Settle(time.Second)
		c.wantClaims("created", "data-db-0 data-db-1")
		claim, _ := apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0")
		if claim.Labels["app"] != "db" || claim.Labels["own"] != "label" {
			t.Errorf("labels %v", claim.Labels)
		}
		if v := c.pod("db-0").Spec.Volumes; len(v) == 0 || v[0].Name != "data" ||
			v[0].PersistentVolumeClaim.ClaimName != "data-db-0" {
			t.Errorf("volumes %+v", v)
		}
		uid := claim.UID
		c.Delete(claim, "") // no bound pod uses the claim, so the protection ends
		apitest.Settle(time.Second)
		if claim, _ = apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0"); claim == nil ||
			claim.UID == uid {
			t.Errorf("the deleted claim of a pending pod was not recreated: %s", c.claims())
		}
		c.scale(1)
		c.wantClaims("scaled", "data-db-0 data-db-1")
		c.Delete(db(0), "")
		apitest.Settle(time.Second)
		c.want("deleted", "")
		c.wantClaims("deleted", "data-db-0 data-db-1")
	})
}

func TestClaimsGoWithTheirPods(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(3, parallel, claims(remove, remove)))
		apitest.Settle(time.Second)
		c.start("db-0", "db-1", "db-2")
		c.wantClaims("created", "data-db-0<StatefulSet data-db-1<StatefulSet data-db-2<StatefulSet")
		c.scale(1)
		c.wantClaims("scaling", "data-db-0<StatefulSet data-db-1<Pod data-db-2<Pod")
		c.end("db-2")
		c.wantClaims("scaled", "data-db-0<StatefulSet data-db-1<Pod")
		c.scale(2)
		c.wantClaims("scaled up", "data-db-0<StatefulSet data-db-1<StatefulSet")
		c.end("db-1")
		c.want("recreated", "0:v1+ 1:v1")
		c.change(claims(keep, remove))
		c.wantClaims("whenDeleted Retain", "data-db-0 data-db-1")
		c.change(claims(remove, keep))
		c.wantClaims("whenDeleted Delete", "data-db-0<StatefulSet data-db-1<StatefulSet")
		c.Delete(db(0), "")
		apitest.Settle(time.Second)
		c.end("db-0")
		c.wantClaims("deleted", "")
	})
}

// If a user has set controller to false in the set's owner reference to a claim, the set corrects it. The set removes
// its reference if another object controls the claim.
func TestOwnerOfClaims(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1, parallel, claims(remove, keep)))
		apitest.Settle(time.Second)
		claim, _ := apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0")
		refs := claim.OwnerReferences
		apitest.Change(c.API, claim, "",
			func(p *corev1.PersistentVolumeClaim) { p.OwnerReferences[0].Controller = new(false) })
		c.change(claims(remove, remove))
		if claim, _ = apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0"); !equality.Semantic.DeepEqual(
			claim.OwnerReferences, refs) {
			t.Errorf("owners %+v, want %+v", claim.OwnerReferences, refs)
		}
		claim.OwnerReferences[0].Controller = new(false)
		other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other",
			Controller: new(true)}
		apitest.Change(c.API, claim, "", func(p *corev1.PersistentVolumeClaim) {
			p.OwnerReferences = []metav1.OwnerReference{claim.OwnerReferences[0], other}
			p.Finalizers = []string{"test/protection"}
		})
		c.change(claims(remove, keep))
		if claim, _ = apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0"); len(
			claim.OwnerReferences) > 1 {
			t.Errorf("owners %+v, want only the other controller", claim.OwnerReferences)
		}
		apitest.Change(c.API, claim, "", func(p *corev1.PersistentVolumeClaim) { p.Finalizers = nil })
	})
}

// A new pod waits until the claims of the surplus pod of the same name are deleted, and gets new claims.
func TestNewPodsDoNotGetClaimsThatAreBeingDeleted(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(1, claims(keep, remove)))
		apitest.Settle(time.Second)
		first := c.pod("db-0")
		apitest.Change(c.API, first, "binding", func(p *corev1.Pod) { p.Spec.NodeName = "n" })
		claim, _ := apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0")
		apitest.Change(c.API, claim, "", func(p *corev1.PersistentVolumeClaim) { p.Finalizers = []string{"test/protection"} })
		c.scale(0)
		c.end("db-0")
		c.scale(1)
		c.want("the old claim exists", "")
		apitest.Change(c.API, claim, "", func(p *corev1.PersistentVolumeClaim) { p.Finalizers = nil })
		apitest.Settle(time.Second)
		c.want("a new claim", "0:v1")
		if next, _ := apitest.Get[*corev1.PersistentVolumeClaim](c.API, "default", "data-db-0"); next == nil ||
			next.UID == claim.UID {
			t.Error("the new pod uses the old claim")
		}
	})
}

// A new pod waits until the garbage collector has deleted the claim that a deleted pod owned.
func TestNewPodsDoNotGetClaimsThatWillBeCollected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		c := cluster{api, t}
		api.Run(New(api.Deps(), &api.Events, Config{}))
		set := db(1, claims(keep, remove))
		claim := set.Spec.VolumeClaimTemplates[0].DeepCopy()
		claim.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"}
		claim.Namespace, claim.Name, claim.Labels = "default", "data-db-0", map[string]string{"app": "db"}
		claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db-0", UID: "gone",
			Controller: new(true)}}
		c.Create(claim.DeepCopy(), set)
		apitest.Settle(time.Minute)
		c.want("the old claim exists", "")
		apitest.Change(c.API, claim, "", func(p *corev1.PersistentVolumeClaim) { p.Finalizers = nil })
		c.Delete(claim, "")
		apitest.Settle(time.Second)
		c.want("collected", "0:v1")
	})
}

func TestIdleWritesNothing(t *testing.T) {
	within(t, func(t *testing.T, c cluster) {
		c.Create(db(2, claims(remove, remove)))
		apitest.Settle(time.Second)
		c.ready("db-0", "db-1")
		before := c.Store.Revision()
		apitest.Settle(24 * time.Hour)
		if after := c.Store.Revision(); after != before {
			t.Errorf("%d writes in an idle day", after-before)
		}
	})
}

func TestOrdinalOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"db-0": 0, "db-12": 12, "db-01": -1, "db-": -1, "db-x": -1, "db": -1,
		"other-1": -1, "db-a-1": -1, "db--1": -1, "db-99999999999": -1} {
		if got := ordinalOf(db(1), apitest.Pod("default", name)); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestMaxUnavailableIsRounded(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]int{"1": 1, "3": 3, "10%": 1, "50%": 2, "100%": 5} {
		if got := (&syncState{set: db(5, rolling(0, limit))}).maxUnavailable(); got != want {
			t.Errorf("%s of 5: %d, want %d", limit, got, want)
		}
	}
}
