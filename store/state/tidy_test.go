package state_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"monopod/store"
	"monopod/store/state"
	"monopod/store/storetest"
)

// A watch can continue from a few minutes ago, not from an hour ago.
func TestTidy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := state.Open(t.Context(), state.Place{DataDir: t.TempDir()}, state.Config{Config: storetest.Config()})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); s.Tidy(ctx) }()
		sel := store.Selector{Resource: "configmaps"}
		from := storetest.Put(t, s, key("a"), "1").Rev
		storetest.Put(t, s, key("a"), "2")
		time.Sleep(7 * time.Minute)
		if _, err := s.Watch(t.Context(), sel, from); err != nil {
			t.Errorf("after seven minutes: %v", err)
		}
		time.Sleep(time.Hour)
		if _, err := s.Watch(t.Context(), sel, from); !errors.Is(err, store.ErrExpired) {
			t.Errorf("after an hour: %v", err)
		}
		if _, err := s.Watch(t.Context(), sel, s.Revision()); err != nil {
			t.Errorf("from now: %v", err)
		}
		cancel()
		<-done
	})
}
