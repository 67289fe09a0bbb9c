package protobuf

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/store"
)

func entries(n int) (all []*store.Entry) {
	for i := range n {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"a": "b", "c": "d"}}}
		all = append(all, store.NewEncoded(store.Key{Resource: "pods", Name: pod.Name}, 1, pod, nil))
	}
	return all
}

// kept is how many of the entries have their message.
func kept(all []*store.Entry) (n int) {
	for _, e := range all {
		if e.Another.Load() != nil {
			n++
		}
	}
	return n
}

func body(t *testing.T, s *Shelf, all []*store.Entry) []byte {
	t.Helper()
	l, err := NewList(schema.GroupVersionKind{Version: "v1", Kind: "PodList"}, metav1.ListMeta{ResourceVersion: "5"}, all, s)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := l.Write(&out); err != nil {
		t.Fatal(err)
	}
	if out.Len() != l.Length() {
		t.Errorf("%d bytes, announced %d", out.Len(), l.Length())
	}
	return out.Bytes()
}

// A list is the same from the shelf, which is empty a minute after it was first used.
func TestShelf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := entries(10)
		want := body(t, &Shelf{}, all)
		if kept(all) != 0 {
			t.Error("a shelf without room keeps messages")
		}
		s := &Shelf{Most: 1 << 20}
		for range 3 {
			if got := body(t, s, all); !bytes.Equal(got, want) || kept(all) != 10 {
				t.Errorf("%d are kept, the list is %q, want %q", kept(all), got, want)
			}
		}
		time.Sleep(keptFor + time.Second)
		synctest.Wait()
		if kept(all) != 0 {
			t.Errorf("%d are kept a minute later", kept(all))
		}
		if got := body(t, s, all); !bytes.Equal(got, want) || kept(all) != 10 {
			t.Errorf("afterwards %d are kept", kept(all))
		}
		time.Sleep(keptFor + time.Second)
	})
}

// An object read alone has the same body as always, which is kept for the next read of it, alone or in a list.
func TestEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all, s := entries(1), &Shelf{Most: 1 << 20}
		want, err := Body(all[0].Object)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			head, data, err := Entry(all[0], s)
			if got := string(head) + string(data) + Tail; err != nil || got != string(want) || kept(all) != 1 {
				t.Errorf("%d are kept, the body is %q, %v; want %q", kept(all), got, err, want)
			}
		}
		if list := body(t, s, all); !bytes.Equal(list, body(t, &Shelf{}, entries(1))) {
			t.Errorf("in a list: %q", list)
		}
		time.Sleep(keptFor + time.Second)
		synctest.Wait()
		if kept(all) != 0 {
			t.Error("it is kept a minute later")
		}
		_, _, err = Entry(store.NewEncoded(store.Key{}, 1, &unstructured.Unstructured{}, nil), s)
		if !apierrors.IsNotAcceptable(err) {
			t.Errorf("without protobuf: %v", err)
		}
	})
}

// A shelf has a bound, and forgets entries that are gone.
func TestShelfIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Shelf{Most: 200}
		func() {
			all := entries(100)
			body(t, s, all)
			if n := kept(all); n == 0 || n > 20 || s.bytes > s.Most {
				t.Errorf("%d are kept, %d bytes", n, s.bytes)
			}
		}()
		runtime.GC()
		next := entries(100)
		body(t, s, next)
		if n := kept(next); n == 0 {
			t.Error("entries that are gone take the room")
		}
		time.Sleep(keptFor + time.Second)
	})
}
