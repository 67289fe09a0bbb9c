package follow

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/client"
)

// sparse is a feed that knows when it gets its first object.
type sparse struct {
	*feed
	appeared chan struct{}
}

func (s sparse) First(schema.GroupVersionResource) (<-chan struct{}, bool) { return s.appeared, true }

// A lazy source is followed from the first object on, others at once.
func TestLazySource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := sparse{&feed{}, make(chan struct{})}
		var s seen
		source := Source[Key]{Selector: client.Selector{Resource: client.Pods}, Keys: Plain(s.keys)}
		lazy := source
		lazy.Lazy = true
		ran := make(chan Key, 10)
		start(t, New(deps(t, f), Config[Key]{Name: "test", Sources: []Source[Key]{source, lazy}, Start: []Key{{Name: "start"}},
			Reconcile: func(_ context.Context, k Key) (time.Duration, error) { ran <- k; return 0, nil }}))
		settle(time.Second)
		if f.lists != 1 || len(ran) != 1 {
			t.Errorf("%d lists, %d reconciles before the first object", f.lists, len(ran))
		}
		f.set(pod("a", "a1", 1))
		close(f.appeared)
		settle(time.Second)
		if got := s.take(); f.lists != 2 || got != "+a1 " {
			t.Errorf("%d lists, %q", f.lists, got)
		}
	})
}
