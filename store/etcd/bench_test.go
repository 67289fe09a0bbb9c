package etcd_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
	"monopod/store/etcd/etcdtest"
	"monopod/store/storetest"
)

// object returns a change to an object of about 1.5 KB, like a pod's JSON.
func object(k store.Key, n int) store.Change {
	return func(store.Object) (store.Object, error) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
		cm.Kind, cm.APIVersion = "ConfigMap", "v1"
		cm.Data = map[string]string{"v": fmt.Sprint(n, strings.Repeat("x", 1400))}
		return cm, nil
	}
}

func put(b *testing.B, s store.Store, k store.Key, n int) {
	b.Helper()
	if _, err := s.Update(b.Context(), k, object(k, n)); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkUpdate measures consecutive writes, compared with a bare put.
func BenchmarkUpdate(b *testing.B) {
	url := etcdtest.Start(b)
	b.Run("store", func(b *testing.B) {
		s, n := open(b, url), 0
		for b.Loop() {
			n++
			put(b, s, key("a"), n)
		}
	})
	b.Run("bare", func(b *testing.B) {
		client, n := etcdtest.Client(b, url), 0
		for b.Loop() {
			n++
			if _, err := client.Put(b.Context(), "/bare", fmt.Sprint(n, strings.Repeat("x", 1500))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRead measures a Get, and a List of 1,000 objects.
func BenchmarkRead(b *testing.B) {
	s := open(b, etcdtest.Start(b))
	for n := range 1000 {
		put(b, s, key(fmt.Sprint("k", n)), n)
	}
	b.Run("get", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Get(b.Context(), key("k7")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("list1000", func(b *testing.B) {
		for b.Loop() {
			if l, _, err := s.List(b.Context(), all); err != nil || len(l) != 1000 {
				b.Fatal(len(l), err)
			}
		}
	})
}

// BenchmarkWatchers measures one write until a hundred watchers have received its event.
func BenchmarkWatchers(b *testing.B) {
	s := open(b, etcdtest.Start(b))
	var watchers []<-chan *store.Event
	for range 100 {
		ch, err := storetest.Watch(b.Context(), s, all, s.Revision())
		if err != nil {
			b.Fatal(err)
		}
		watchers = append(watchers, ch)
	}
	n := 0
	for b.Loop() {
		n++
		put(b, s, key("a"), n)
		for _, ch := range watchers {
			<-ch
		}
	}
}
