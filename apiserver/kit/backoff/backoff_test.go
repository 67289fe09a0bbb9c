package backoff_test

import (
	"slices"
	"testing"
	"time"

	"monopod/apiserver/kit/backoff"
)

func TestDelaysDoubleAndReset(t *testing.T) {
	t.Parallel()
	var b backoff.Backoff
	now := time.Unix(0, 0)
	var delays []int
	for range 8 { // fails one second after each start
		failed := now.Add(time.Second)
		rest, _ := b.Remaining("k", failed, failed)
		delays = append(delays, int(rest.Seconds()))
		now = failed.Add(rest)
		b.Attempt("k", failed, now)
	}
	if want := []int{0, 10, 20, 40, 80, 160, 300, 300}; !slices.Equal(delays, want) {
		t.Errorf("delays %v, want %v", delays, want)
	}
	failed := now.Add(11 * time.Minute)
	if rest, _ := b.Remaining("k", failed, failed); rest != 0 {
		t.Errorf("waits %v after it ran for 11 minutes", rest)
	}
	b.Attempt("k", failed, failed)
	if rest, _ := b.Remaining("k", failed, failed); rest != backoff.Initial {
		t.Errorf("waits %v, want %v", rest, backoff.Initial)
	}
	if rest, _ := b.Remaining("other", failed, failed); rest != 0 {
		t.Errorf("another key waits %v", rest)
	}
}
