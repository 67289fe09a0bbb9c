package bolt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

// object returns an object with about 1 KB of JSON.
func object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Data:       map[string]string{"v": strings.Repeat("x", 900)},
	}
}

func key(name string) store.Key {
	return store.Key{Resource: "configmaps", Namespace: "ns", Name: name}
}

func put(b *testing.B, s store.Store, name string) {
	if _, err := s.Update(b.Context(), key(name),
		func(store.Object) (store.Object, error) { return object(name), nil }); err != nil {
		b.Error(err)
	}
}

// rawCommit measures the lower bound of a durable write: one object in a bare bbolt file with the same options,
// committed.
func rawCommit(b *testing.B, objects, rounds int) time.Duration {
	b.Helper()
	db, err := bbolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bbolt.Options{
		FreelistType: bbolt.FreelistMapType, NoFreelistSync: true, PageSize: 4096})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	value := []byte(strings.Repeat("x", 1000))
	n := 0
	commit := func() {
		if err := db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("objects"))
			for range objects {
				n++
				if err == nil {
					err = bucket.Put(fmt.Appendf(nil, "/registry/configmaps/ns/%09d", n), value)
				}
			}
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
	from := time.Now()
	for range rounds {
		commit()
	}
	return time.Since(from) / time.Duration(rounds)
}

// twoSyncs measures two fdatasyncs of a page each.
func twoSyncs(b *testing.B, rounds int) time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(b.TempDir(), "sync"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, 4096)
	from := time.Now()
	for i := range 2 * rounds {
		if _, err := f.WriteAt(page, int64(i%64)*4096); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(from) / time.Duration(rounds)
}

// BenchmarkOneWriter measures consecutive durable creates, compared with a bare bbolt commit of the same object.
func BenchmarkOneWriter(b *testing.B) {
	s, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), storetest.Config())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const rounds = 1000
	raw := rawCommit(b, 1, rounds)
	from := time.Now()
	for i := range rounds {
		put(b, s, fmt.Sprintf("%09d", i))
	}
	ours := time.Since(from) / rounds
	for b.Loop() { // for a fixed number of writes
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(ours.Microseconds()), "µs/write")
	b.ReportMetric(float64(raw.Microseconds()), "µs/bare-commit")
	b.ReportMetric(float64(ours)/float64(raw), "ratio")
}

// cpuTime returns the CPU time of this process, which does not depend on the load of the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkManyWriters measures 64 concurrent callers, compared with what the disk allows: the objects of a
// batch times the rate of two fdatasyncs.
func BenchmarkManyWriters(b *testing.B) {
	s, err := bolt.Open(filepath.Join(b.TempDir(), "state.db"), storetest.Config())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const writers, each = 64, 300
	var wg sync.WaitGroup
	var n atomic.Int64
	from, cpu := time.Now(), cpuTime(b)
	for range writers {
		wg.Go(func() {
			for range each {
				put(b, s, fmt.Sprintf("%09d", n.Add(1)))
			}
		})
	}
	wg.Wait()
	perSecond := float64(n.Load()) / time.Since(from).Seconds()
	ours := cpuTime(b) - cpu
	cpu = cpuTime(b)
	bare := rawCommit(b, writers, each)
	raw := cpuTime(b) - cpu
	for b.Loop() {
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(perSecond, "writes/s")
	b.ReportMetric(64/twoSyncs(b, 500).Seconds(), "limit-two-fdatasync/s")
	b.ReportMetric(writers/bare.Seconds(), "bare-bbolt-64/s")
	b.ReportMetric(float64(ours.Nanoseconds())/1000/writers/each, "cpu-µs/write")
	b.ReportMetric(float64(raw.Nanoseconds())/1000/writers/each, "cpu-µs/bare")
}
