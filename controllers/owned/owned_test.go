package owned

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"monopod/controllers/podstate"
)

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func ownedBy(uid types.UID) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: new(true)}}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	owner := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs", UID: "me"}}
	deleting := owner.DeepCopy()
	deleting.DeletionTimestamp = new(metav1.Now())
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "x"} }
	gone := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	adopter := Adopter[*corev1.Pod]{Adoptive: podstate.Active}
	for name, c := range map[string]struct {
		owner *appsv1.ReplicaSet
		pod   *corev1.Pod
		want  Verdict
	}{
		"owned":                                {owner, pod(ownedBy("me"), labelled), Keep},
		"owned, relabelled":                    {owner, pod(ownedBy("me")), Release},
		"owned, relabelled, owner terminating": {deleting, pod(ownedBy("me")), Ignore},
		"owned, terminating":                   {owner, pod(ownedBy("me"), labelled, gone), Keep},
		"another owner":                        {owner, pod(ownedBy("other"), labelled), Ignore},
		"orphan":                               {owner, pod(labelled), Adopt},
		"orphan, not selected":                 {owner, pod(), Ignore},
		"orphan, terminating":                  {owner, pod(labelled, gone), Ignore},
		"orphan, owner terminating":            {deleting, pod(labelled), Ignore},
	} {
		if got := adopter.Judge(c.owner, labels.SelectorFromSet(labels.Set{"app": "x"}), c.pod); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// The index follows changes of owners, and keeps nothing of deleted objects.
func TestIndex(t *testing.T) {
	t.Parallel()
	me := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "me"}}
	x := NewIndex[*corev1.Pod]()
	check := func(when string, of, orOrphan int) {
		t.Helper()
		if a, b := len(x.Of(me)), len(x.OfOrOrphan(me)); a != of || b != orOrphan {
			t.Errorf("%s: %d owned, %d owned or orphaned, want %d and %d", when, a, b, of, orOrphan)
		}
	}
	orphan, mine, others := pod(), pod(ownedBy("me")), pod(ownedBy("other"))
	x.Change(nil, orphan)
	check("orphan", 0, 1)
	x.Change(orphan, mine)
	check("adopted", 1, 1)
	x.Change(mine, others)
	check("another owner", 0, 0)
	x.Change(others, nil)
	if check("deleted", 0, 0); len(x.owned)+len(x.orphans) != 0 {
		t.Errorf("left in the index: %v %v", x.owned, x.orphans)
	}
}
