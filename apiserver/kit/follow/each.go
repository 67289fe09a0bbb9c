package follow

import (
	"errors"
	"sync"

	"monopod/apiserver/kit/guard"
)

// Each calls f for every item, at most limit concurrently, waits for all, and returns their errors. A panic in f
// is raised in the caller.
func Each[T any](limit int, items []T, f func(T) error) []error {
	var (
		group guard.Group
		mu    sync.Mutex // guards errs
		errs  []error
	)
	group.SetLimit(max(limit, 1))
	for _, item := range items {
		group.Do(func() error {
			err := guard.Call(func() error { return f(item) })
			if p := (*guard.Panic)(nil); errors.As(err, &p) {
				return err
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
			return nil
		})
	}
	guard.Raise(group.Wait())
	return errs
}
