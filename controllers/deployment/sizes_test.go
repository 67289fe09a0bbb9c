package deployment

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The percentages are those of upstream's tests of ResolveFenceposts and MaxUnavailable.
func TestLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		replicas                     int32
		maxSurge, maxUnavailable     string
		surge, unavailable, up, down int32
	}{
		{10, "25%", "25%", 3, 2, 13, 8},
		{4, "25%", "25%", 1, 1, 5, 3},
		{1, "25%", "25%", 1, 0, 2, 1},
		{3, "0%", "20%", 0, 1, 3, 2}, // if both round to 0, maxUnavailable is 1
		{10, "0", "10%", 0, 1, 10, 9},
		{10, "39%", "39%", 4, 3, 14, 7},
		{10, "1", "0", 1, 0, 11, 10},
		{10, "200%", "100%", 20, 10, 30, 0},
		{5, "0", "20", 0, 5, 5, 0}, // at most replicas
		{0, "25%", "25%", 0, 0, 0, 0},
		{0, "3", "3", 3, 0, 3, 0},
	} {
		d := web(c.replicas, rolling(c.maxSurge, c.maxUnavailable))
		if surge, unavailable := limits(d); surge != c.surge || unavailable != c.unavailable || most(d) != c.up ||
			fewest(d) != c.down {
			t.Errorf("%+v: %d and %d, from %d to %d", c, surge, unavailable, fewest(d), most(d))
		}
	}
	if surge, unavailable := limits(web(10, recreating)); surge != 0 || unavailable != 0 {
		t.Errorf("Recreate: %d and %d", surge, unavailable)
	}
}

// sized returns a ReplicaSet with spec.replicas, status.replicas, status.availableReplicas, and the annotations
// desired-replicas and max-replicas.
func sized(name string, size, there, available int32, annotations ...int32) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "uid-" + "x"},
		Spec:       appsv1.ReplicaSetSpec{Replicas: &size},
		Status:     appsv1.ReplicaSetStatus{Replicas: there, AvailableReplicas: available},
	}
	for i, n := range annotations {
		metav1.SetMetaDataAnnotation(&rs.ObjectMeta, []string{desiredReplicasAnnotation, maxReplicasAnnotation}[i],
			fmt.Sprint(n))
	}
	return rs
}

// behind gives a ReplicaSet a generation that its status has not observed.
func behind(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs.Generation = 1
	return rs
}

func TestGrown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		d    *appsv1.Deployment
		new  *appsv1.ReplicaSet
		old  []*appsv1.ReplicaSet
		want int32
	}{
		"first":               {web(10, rolling("2", "2")), nil, nil, 10},
		"first with old ones": {web(10, rolling("2", "2")), nil, []*appsv1.ReplicaSet{sized("a", 10, 10, 10)}, 2},
		"grows up to the surge": {web(10, rolling("2", "2")), sized("n", 2, 2, 0),
			[]*appsv1.ReplicaSet{sized("a", 6, 6, 6)}, 6},
		"grows at most to replicas": {web(10, rolling("9", "2")), sized("n", 8, 8, 0),
			[]*appsv1.ReplicaSet{sized("a", 6, 6, 6)}, 10},
		"no surge": {web(10, rolling("2", "2")), sized("n", 2, 2, 0), []*appsv1.ReplicaSet{sized("a", 10, 10, 10)}, 2},
		"too many": {web(10, rolling("2", "2")), sized("n", 2, 2, 0), []*appsv1.ReplicaSet{sized("a", 12, 12, 12)}, 2},
		"old pods are not deleted yet": {web(10, rolling("2", "2")), sized("n", 2, 2, 0),
			[]*appsv1.ReplicaSet{sized("a", 6, 9, 9)}, 3},
		"larger than replicas": {web(3, rolling("2", "2")), sized("n", 8, 8, 0),
			[]*appsv1.ReplicaSet{sized("a", 6, 6, 6)}, 3},
		"an old one has not observed its size": {web(10, rolling("2", "2")), sized("n", 2, 2, 0),
			[]*appsv1.ReplicaSet{behind(sized("a", 6, 0, 0))}, 2},
		"the new one has not observed its size": {web(10, rolling("2", "2")), behind(sized("n", 2, 0, 0)),
			[]*appsv1.ReplicaSet{sized("a", 6, 6, 6)}, 6},
		"Recreate without old pods": {web(10, recreating), nil, nil, 10},
	} {
		if got := grown(c.d, c.new, c.old); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestShrunk(t *testing.T) {
	t.Parallel()
	d := web(10, rolling("3", "2"))
	for name, c := range map[string]struct {
		new  *appsv1.ReplicaSet
		old  []*appsv1.ReplicaSet
		want []int32
	}{
		"as many as may be unavailable":  {sized("n", 3, 3, 0), []*appsv1.ReplicaSet{sized("a", 10, 10, 10)}, []int32{8}},
		"the new ones are not available": {sized("n", 5, 5, 0), []*appsv1.ReplicaSet{sized("a", 8, 8, 8)}, []int32{8}},
		"a new one is available":         {sized("n", 5, 5, 1), []*appsv1.ReplicaSet{sized("a", 8, 8, 8)}, []int32{7}},
		// one more deletion would leave 7 available pods, fewer than 8
		"an old one has failed": {sized("n", 5, 5, 0), []*appsv1.ReplicaSet{sized("a", 8, 8, 7)}, []int32{8}},
		"old ones that failed go first": {sized("n", 5, 5, 5), []*appsv1.ReplicaSet{sized("a", 4, 4, 4),
			sized("b", 4, 4, 0)}, []int32{3, 0}},
		"the oldest first": {sized("n", 6, 6, 6), []*appsv1.ReplicaSet{sized("a", 3, 3, 3),
			sized("b", 4, 4, 4)}, []int32{0, 2}},
		"the status has surplus pods": {sized("n", 5, 5, 5), []*appsv1.ReplicaSet{sized("a", 8, 10, 10)}, []int32{3}},
		"a new one that shrinks":      {sized("n", 3, 5, 5), []*appsv1.ReplicaSet{sized("a", 8, 8, 8)}, []int32{5}},
		"all are available": {sized("n", 10, 10, 10), []*appsv1.ReplicaSet{sized("a", 1, 1, 1),
			sized("b", 2, 2, 2)}, []int32{0, 0}},
		"rolled over, the new one is empty": {sized("n", 0, 0, 0), []*appsv1.ReplicaSet{sized("a", 8, 8, 8),
			sized("b", 5, 5, 0)}, []int32{8, 0}},
		"no old one is available":       {sized("n", 3, 3, 0), []*appsv1.ReplicaSet{sized("a", 10, 10, 0)}, []int32{8}},
		"more available than replicas":  {sized("n", 0, 0, 0), []*appsv1.ReplicaSet{sized("a", 13, 13, 13)}, []int32{8}},
		"a new one without an old one":  {sized("n", 3, 3, 0), nil, []int32{}},
		"the new one has an old status": {sized("n", 3, 0, 0), []*appsv1.ReplicaSet{sized("a", 8, 8, 8)}, []int32{8}},
	} {
		if got := shrunk(d, c.old, c.new); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The first rows are the figures of upstream's TestScale. Sizes are in the order of age,
// oldest first.
func TestProportional(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		from, to int32
		surge    string
		sizes    []int32
		max      int32 // max-replicas; 0: no annotation
		want     []int32
	}{
		"5 to 10":                     {5, 10, "0", []int32{3, 2}, 5, []int32{6, 4}},
		"5 to 3":                      {5, 3, "0", []int32{3, 2}, 5, []int32{2, 1}},
		"9 to 4":                      {9, 4, "0", []int32{1, 8}, 9, []int32{0, 4}},
		"7 to 10":                     {7, 10, "0", []int32{2, 3, 2}, 7, []int32{3, 4, 3}},
		"13 to 8":                     {13, 8, "0", []int32{3, 8, 2}, 13, []int32{2, 5, 1}},
		"3 to 4, the newest grows":    {3, 4, "0", []int32{1, 1, 1}, 3, []int32{1, 1, 2}},
		"3 to 2, the oldest shrinks":  {3, 2, "0", []int32{1, 1, 1}, 3, []int32{0, 1, 1}},
		"4 to 5":                      {4, 5, "0", []int32{2, 2}, 4, []int32{2, 3}},
		"6 to 0":                      {6, 0, "0", []int32{1, 2, 3}, 6, []int32{0, 0, 0}},
		"10 to 20 with surge":         {10, 20, "2", []int32{6, 6}, 12, []int32{11, 11}},
		"10 to 50 with another surge": {10, 50, "6", []int32{8, 5}, 13, []int32{34, 22}},
		"10 to 14":                    {10, 14, "0", []int32{3, 7}, 10, []int32{4, 10}},
		"with surge in percent":       {10, 20, "30%", []int32{8, 5}, 13, []int32{16, 10}},
		"the surge was not used":      {10, 20, "2", []int32{6, 5}, 12, []int32{13, 9}},
		"nothing to do":               {10, 10, "0", []int32{6, 4}, 10, []int32{6, 4}},
		"not annotated":               {10, 20, "0", []int32{5, 5}, 0, []int32{10, 10}},
	} {
		d := web(c.to, rolling(c.surge, "1"))
		d.Status.Replicas = c.from
		var sets []*appsv1.ReplicaSet
		for i, n := range c.sizes {
			rs := sized(fmt.Sprint(i), n, n, n, c.from, c.max)
			rs.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
			sets = append(sets, rs)
		}
		got := proportional(d, sets)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		total := int32(0)
		for _, n := range got {
			total += n
		}
		if allowed := most(d); c.to > 0 && total != allowed || c.to == 0 && total != 0 {
			t.Errorf("%s: %d replicas in total, want %d", name, total, allowed)
		}
	}
	// Surplus pods of a ReplicaSet count until they are deleted.
	sets := []*appsv1.ReplicaSet{sized("a", 5, 8, 8, 10, 10), sized("b", 5, 5, 5, 10, 10)}
	if got := proportional(web(14, rolling("0", "1")), sets); got[0]+got[1] != 11 {
		t.Errorf("%v", got)
	}
	if unreported(sets) || !unreported([]*appsv1.ReplicaSet{sets[0], behind(sized("b", 1, 1, 1))}) {
		t.Error("unreported returns a wrong result")
	}
	if !rescaled(web(9), sets) || rescaled(web(10), sets) || rescaled(web(3), []*appsv1.ReplicaSet{sized("a", 1, 1, 1)}) {
		t.Error("rescaled returns a wrong result")
	}
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	d := web(1)
	d.Annotations = map[string]string{"a": "b", "kubernetes.io/change-cause": "why", revisionAnnotation: "9",
		historyAnnotation:         "9",
		desiredReplicasAnnotation: "9", maxReplicasAnnotation: "9", corev1.LastAppliedConfigAnnotation: "{}"}
	check := func(what string, had map[string]string, revision int64, want map[string]string) {
		t.Helper()
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Annotations: had}}
		want["a"], want["kubernetes.io/change-cause"] = "b", "why"
		if got := annotated(d, rs, revision); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	check("new", nil, 1, map[string]string{revisionAnnotation: "1"})
	check("the latest", map[string]string{revisionAnnotation: "3", "own": "x"}, 3,
		map[string]string{revisionAnnotation: "3", "own": "x"})
	check("a later revision was deleted", map[string]string{revisionAnnotation: "30"}, 4,
		map[string]string{revisionAnnotation: "30"})
	check("an undo", map[string]string{revisionAnnotation: "9"}, 10, map[string]string{revisionAnnotation: "10",
		historyAnnotation: "9"})
	check("a second undo", map[string]string{revisionAnnotation: "10", historyAnnotation: "1,9"}, 12,
		map[string]string{revisionAnnotation: "12", historyAnnotation: "1,9,10"})
	check("not a number", map[string]string{revisionAnnotation: "x"}, 2, map[string]string{revisionAnnotation: "x"})

	history := ""
	for i := range 1000 {
		history = withHistory(history, fmt.Sprint(i))
	}
	if len(history) > maxHistory || len(history) < maxHistory-5 || history[len(history)-8:] != ",998,999" {
		t.Errorf("%d characters of history: %s", len(history), history)
	}
}

func TestHash(t *testing.T) {
	t.Parallel()
	hash := func(d *appsv1.Deployment) string {
		h, err := hashOf(&d.Spec.Template, d.Status.CollisionCount)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	a := hash(web(1))
	if b := hash(web(5)); a != b {
		t.Errorf("the same template has %s and %s", a, b)
	}
	if b := hash(web(1, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "v2" })); a == b {
		t.Error("another template has the same hash")
	}
	if b := hash(web(1, func(d *appsv1.Deployment) { d.Status.CollisionCount = new(int32(1)) })); a == b {
		t.Error("a collision does not change the hash")
	}
}
