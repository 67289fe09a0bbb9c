package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
)

// step is one change in the model; "" means no object.
type step struct {
	rev       int64
	name      string
	old, next string
}

// testModel writes at random and then watches from every revision with random selectors: each watch must get
// exactly the changes that match it, according to a model.
func testModel(t *testing.T, s store.Store) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	start := s.Revision()
	steps := randomSteps(t, s, random, 40)
	for range 20 {
		from := start
		if i := random.IntN(len(steps) + 1); i > 0 {
			from = steps[i-1].rev
		}
		wanted := randomSubset(random)
		sel := store.Selector{Match: func(o store.Object) bool { return wanted[o.(*corev1.ConfigMap).Data["v"]] }}
		if random.IntN(3) == 0 {
			sel.Name = "k1"
		}
		checkWatch(t, watch(t, s, sel, from), expect(steps, from, sel.Name, wanted))
	}
}

// randomSteps creates, changes and removes a few objects with the values a to d.
func randomSteps(t *testing.T, s store.Store, random *rand.Rand, n int) []step {
	t.Helper()
	now := map[string]string{}
	var steps []step
	for len(steps) < n {
		name := fmt.Sprintf("k%d", random.IntN(3))
		next := []string{"", "a", "b", "c", "d"}[random.IntN(5)]
		old := now[name]
		if next == old {
			continue
		}
		k, change := key("ns", name), set(key("ns", name), next)
		if next == "" {
			change = remove
		}
		e, err := s.Update(t.Context(), k, change)
		if err != nil {
			t.Fatal(err)
		}
		now[name] = next
		steps = append(steps, step{e.Rev, name, old, next})
	}
	return steps
}

func randomSubset(random *rand.Rand) map[string]bool {
	wanted := map[string]bool{}
	for _, v := range []string{"a", "b", "c", "d"} {
		wanted[v] = random.IntN(2) == 0
	}
	return wanted
}

// expect returns the events of a watch from a revision.
func expect(steps []step, from int64, name string, wanted map[string]bool) []string {
	var out []string
	for _, st := range steps {
		if st.rev > from && (name == "" || name == st.name) && (wanted[st.old] || wanted[st.next]) {
			out = append(out, fmt.Sprintf("%d %s %s>%s", st.rev, st.name, st.old, st.next))
		}
	}
	return out
}

func checkWatch(t *testing.T, w watching, want []string) {
	t.Helper()
	var got []string
	for range want {
		ev := w.next()
		got = append(got,
			fmt.Sprintf("%d %s %s>%s", ev.Rev, ev.Key.Name, strings.Trim(value(ev.Old), "-"), strings.Trim(value(ev.New), "-")))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
