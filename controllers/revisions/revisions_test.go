package revisions_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/controllers/internal/apitest"
	"monopod/controllers/revisions"
)

func daemon(name string) *appsv1.DaemonSet {
	at := map[string]string{"app": name}
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
			Annotations: map[string]string{"kubernetes.io/change-cause": "first"}},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: at}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: at},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "v1"}}},
		}},
	}
}

// fixture is a Keeper with an owner.
type fixture struct {
	*apitest.API
	keeper     revisions.Keeper
	template   *corev1.PodTemplateSpec
	collisions *int32
}

func newFixture(t *testing.T) *fixture {
	api := apitest.New(t)
	api.Create(daemon("d"))
	r := &fixture{API: api, keeper: revisions.Keeper{Client: api.Client,
		Kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), HashLabel: "hash"}}
	r.template = r.owner().Spec.Template.DeepCopy()
	return r
}

func (r *fixture) owner() *appsv1.DaemonSet {
	d, _ := apitest.Get[*appsv1.DaemonSet](r.API, "default", "d")
	return d
}

func (r *fixture) all() []*appsv1.ControllerRevision {
	return apitest.List[*appsv1.ControllerRevision](r.API, "default")
}

// sync sets the image of the template and calls Sync.
func (r *fixture) sync(image string, known []*appsv1.ControllerRevision) revisions.History {
	r.T.Helper()
	r.template.Spec.Containers[0].Image = image
	h, err := r.keeper.Sync(r.T.Context(), revisions.Owner{
		Object: r.owner(), Selector: labels.SelectorFromSet(labels.Set{"app": "d"}), Template: r.template,
		Collisions: r.collisions,
	}, known)
	if err != nil {
		r.T.Fatal(err)
	}
	return h
}

func TestRevisionsAreNumbered(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	first := r.sync("v1", r.all()).Current
	hash := first.Labels["hash"]
	if first.Revision != 1 || hash == "" || first.Name != "d-"+hash || first.Labels["app"] != "d" ||
		first.Annotations["kubernetes.io/change-cause"] != "first" || !metav1.IsControlledBy(first, r.owner()) {
		t.Errorf("the first revision is %+v", first)
	}
	if again := r.sync("v1", r.all()).Current; again.ResourceVersion != first.ResourceVersion {
		t.Error("a sync without a change wrote")
	}
	if unseen := r.sync("v1", nil).Current; unseen.UID != first.UID {
		t.Error("Sync created a revision that exists but is missing in the index")
	}
	r.sync("v2", r.all())
	h := r.sync("v3", r.all())
	if h.Current.Revision != 3 || len(h.Others) != 2 || h.Others[0].Revision != 1 || h.Others[1].Revision != 2 ||
		h.Collisions != nil {
		t.Errorf("history %+v", h)
	}
	back := r.sync("v1", r.all())
	if back.Current.UID != first.UID || back.Current.Revision != 4 || len(r.all()) != 3 {
		t.Errorf("after an undo the revision is %s with number %d", back.Current.Name, back.Current.Revision)
	}
	its, err := revisions.Template(back.Others[0])
	if err != nil || its.Spec.Containers[0].Image != "v2" || its.Labels["app"] != "d" {
		t.Errorf("template %+v, %v", its, err)
	}
}

func TestNameCollisionsUseNextName(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	mine := r.sync("v1", nil).Current
	r.Delete(mine, "")
	mine = mine.DeepCopy()
	mine.ResourceVersion = ""
	mine.UID = ""
	mine.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Other", Name: "o", UID: "o",
		Controller: new(true)}}
	r.Create(mine)
	h := r.sync("v1", r.all())
	if h.Collisions == nil || *h.Collisions != 1 || h.Current.Name == mine.Name {
		t.Errorf("current is %s after %v collisions", h.Current.Name, h.Collisions)
	}
}

func TestOrphansAreAdopted(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	first := r.sync("v1", nil).Current
	apitest.Change(r.API, first, "", func(c *appsv1.ControllerRevision) { c.OwnerReferences = nil })
	if h := r.sync("v1", r.all()); h.Current.UID != first.UID || !metav1.IsControlledBy(h.Current, r.owner()) {
		t.Errorf("not adopted: %+v", h.Current.ObjectMeta)
	}
	apitest.Change(r.API, first, "", func(c *appsv1.ControllerRevision) { c.Labels = nil })
	if h := r.sync("v2", r.all()); len(h.Others) != 0 || h.Current.Revision != 1 {
		t.Errorf("a revision that the selector does not match is in the history: %+v", h.Others)
	}
}

func TestTrim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keep int
		live string // image
		want int
	}{
		"none":                 {5, "", 5},
		"oldest first":         {2, "", 2},
		"live ones are kept":   {2, "v0", 3},
		"negative keeps all":   {-1, "", 5},
		"zero keeps only live": {0, "v3", 1},
		"zero keeps none":      {0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			for i := range 5 {
				r.sync(fmt.Sprintf("v%d", i), r.all())
			}
			h := r.sync("now", r.all())
			live := func(rev *appsv1.ControllerRevision) bool {
				its, _ := revisions.Template(rev)
				return its.Spec.Containers[0].Image == c.live
			}
			if err := r.keeper.Trim(t.Context(), h.Others, c.keep, live); err != nil {
				t.Fatal(err)
			}
			left := r.sync("now", r.all()).Others
			if len(left) != c.want {
				t.Fatalf("%d revisions left, want %d", len(left), c.want)
			}
			for i := range left {
				if want := int64(5 - i); left[len(left)-1-i].Revision != want && c.live == "" {
					t.Errorf("left is revision %d, want %d", left[len(left)-1-i].Revision, want)
				}
			}
		})
	}
}
