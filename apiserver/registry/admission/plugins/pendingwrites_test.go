package plugins

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLedgerReportsUnlistedUsage(t *testing.T) {
	t.Parallel()
	var l pendingWrites
	counted := func(began int64) (n int) {
		if err := l.admit(began, nil, func(pending []*pendingWrite) error { n = len(pending); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	early := l.begin()
	h := &pendingWrite{object: new(corev1.Pod)}
	if err := l.admit(l.begin(), h, func([]*pendingWrite) error { return nil }); err != nil {
		t.Fatal(err)
	}
	during := l.begin()
	l.release(h)
	late := l.begin()
	if counted(early) != 1 || counted(during) != 1 {
		t.Error("a write that ended after the list is not counted")
	}
	if counted(late) != 0 {
		t.Error("a write that ended before the list is counted")
	}
	for began := range late + 1 {
		l.end(began)
	}
	if len(l.writes)+len(l.checking) != 0 {
		t.Errorf("%d holds and %d checks are left over", len(l.writes), len(l.checking))
	}
}

func TestLedgerReleasesRejectedUsage(t *testing.T) {
	t.Parallel()
	var l pendingWrites
	began, no := l.begin(), errors.New("no")
	if err := l.admit(began, &pendingWrite{}, func([]*pendingWrite) error { return no }); !errors.Is(err, no) ||
		len(l.writes) != 0 {
		t.Errorf("%v, %d held", err, len(l.writes))
	}
}
