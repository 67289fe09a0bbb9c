package convert_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

// converter records the number of objects of its calls.
type converter struct {
	kind.Converter
	calls []int
}

func (c *converter) Show(_ context.Context, stored []kind.Object) ([]kind.Object, error) {
	c.calls = append(c.calls, len(stored))
	return stored, nil
}

// A webhook converts a list lazily, in batches of limited number and size.
func TestEach(t *testing.T) {
	t.Parallel()
	entry := func(size int) *store.Entry {
		return store.NewEncoded(store.Key{}, 0, &corev1.ConfigMap{}, []byte(strings.Repeat("x", size)))
	}
	var entries []*store.Entry
	for range 1200 {
		entries = append(entries, entry(10))
	}
	for range 3 {
		entries = append(entries, entry(1<<20))
	}
	entries = append(entries, entry(3<<20), entry(1))
	c := &converter{}
	res := &kind.Resource{View: &kind.View{Converter: c}}
	n, after500 := 0, 0
	for e, err := range convert.Each(t.Context(), res, entries) {
		if err != nil || e != entries[n] {
			t.Fatalf("entry %d: %v, %v", n, e, err)
		}
		if n++; n == 500 {
			after500 = len(c.calls)
		}
	}
	if want := []int{500, 500, 201, 2, 1, 1}; n != len(entries) || after500 != 1 || !slices.Equal(c.calls, want) {
		t.Errorf("%d entries, %d calls for the first 500, calls of %v; want %v", n, after500, c.calls, want)
	}
}
