package store

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// concurrentWrites is the number of concurrent writes of Copy, which share commits.
const concurrentWrites = 64

// Copy copies every object of the resources from one store to another, unchanged except for its resourceVersion. It
// returns the number of copied objects of each resource. It does not remove other objects in to.
func Copy(ctx context.Context, to, from Store, resources []string) (map[string]int, error) {
	counts := make(map[string]int, len(resources))
	for _, resource := range resources {
		entries, _, err := from.List(ctx, Selector{Resource: resource})
		if err != nil {
			return counts, fmt.Errorf("read: %w", err)
		}
		group, groupCtx := errgroup.WithContext(ctx)
		group.SetLimit(concurrentWrites)
		for _, e := range entries {
			group.Go(func() error {
				_, err := to.Update(groupCtx, e.Key, func(Object) (Object, error) {
					return e.Object.DeepCopyObject().(Object), nil
				})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return counts, fmt.Errorf("write: %w", err)
		}
		counts[resource] = len(entries)
	}
	return counts, nil
}
