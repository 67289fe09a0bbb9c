package plugins

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLedgerReportsUnlistedUsage(t *testing.T) {
	t.Parallel()
	var l ledger
	counted := func(began int64) (n int) {
		if err := l.take(began, nil, func(pending []*hold) error { n = len(pending); return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	early := l.begin()
	h := &hold{object: new(corev1.Pod)}
	if err := l.take(l.begin(), h, func([]*hold) error { return nil }); err != nil {
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
	if len(l.holds)+len(l.checking) != 0 {
		t.Errorf("%d holds and %d checks are left over", len(l.holds), len(l.checking))
	}
}

func TestLedgerReleasesRejectedUsage(t *testing.T) {
	t.Parallel()
	var l ledger
	began, no := l.begin(), errors.New("no")
	if err := l.take(began, &hold{}, func([]*hold) error { return no }); !errors.Is(err, no) || len(l.holds) != 0 {
		t.Errorf("%v, %d held", err, len(l.holds))
	}
}
