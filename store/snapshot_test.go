package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"monopod/store"
	"monopod/store/storetest"
)

// A list with any selector, of the present or of an earlier revision, equals the matching objects of the whole list at
// that revision.
func TestListIsPartOfTheWholeList(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	s := store.NewMemory(storetest.Config(), nil, nil, 0)
	defer s.Close()
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	spaces, names := []string{"", "a", "a-b", "a0", "b"}, []string{"-", "a", "a-b", "x", "z"}
	past, first := map[int64][]*store.Entry{}, s.Revision()+1
	for i := range 200 {
		key := store.Key{Resource: "configmaps", Namespace: one(spaces...), Name: one(names...)}
		if e, err := s.Get(t.Context(), key); err == nil && random.IntN(3) == 0 {
			if _, err := s.Update(t.Context(), e.Key, func(store.Object) (store.Object, error) { return nil, nil }); err != nil {
				t.Fatal(err)
			}
		} else {
			storetest.Put(t, s, key, fmt.Sprint(i))
		}
		all, rev, err := s.List(t.Context(), store.Selector{Resource: "configmaps"})
		if err != nil {
			t.Fatal(err)
		}
		past[rev] = all
		for range 20 {
			sel := store.Selector{Resource: "configmaps", Namespace: one(spaces...), Name: one(append(names, "", "")...),
				Limit: random.IntN(4), At: max(rev-random.Int64N(50), first)}
			if random.IntN(2) == 0 {
				sel.After = one(spaces...) + "/" + one(names...)
			}
			if random.IntN(4) == 0 {
				sel.Match = func(o store.Object) bool { return o.GetName() != "x" }
			}
			got, at, err := s.List(t.Context(), sel)
			if want := selected(past[sel.At], sel); err != nil || at != sel.At || listed(got) != want {
				t.Fatalf("%+v at %d: %s, %v; want %s", sel, at, listed(got), err, want)
			}
		}
	}
}

func selected(all []*store.Entry, sel store.Selector) string {
	var out []*store.Entry
	for _, e := range all {
		if (sel.Namespace == "" || e.Key.Namespace == sel.Namespace) && (sel.Name == "" || e.Key.Name == sel.Name) &&
			(sel.After == "" || e.Key.Namespace+"/"+e.Key.Name > sel.After) && sel.Matches(e) &&
			(sel.Limit == 0 || len(out) < sel.Limit) {
			out = append(out, e)
		}
	}
	return listed(out)
}

func listed(all []*store.Entry) string {
	var b strings.Builder
	for _, e := range all {
		fmt.Fprintf(&b, "%v@%d ", e.Key, e.Rev)
	}
	return b.String()
}
