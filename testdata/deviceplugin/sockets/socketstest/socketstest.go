// Package socketstest runs device plugins and DRA drivers in synctest bubbles.
package socketstest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// Plug runs serve until pull is called or the test ends. It returns when serve waits for calls; pull returns when serve
// has ended.
func Plug(t testing.TB, serve func(ctx context.Context) error) (pull func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx) }()
	synctest.Wait()
	pull = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
	t.Cleanup(pull)
	return pull
}
