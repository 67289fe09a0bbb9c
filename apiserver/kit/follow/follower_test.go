package follow_test

import (
	"context"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// cached answers Lists one after another; its watches end at once.
type cached struct {
	client.Client
	lists []string // resourceVersions
}

func (c *cached) List(context.Context, client.Selector) ([]client.Object, string, error) {
	revision := c.lists[0]
	c.lists = c.lists[1:]
	obj := &corev1.ConfigMap{}
	obj.ResourceVersion = revision
	return []client.Object{obj}, revision, nil
}

func (c *cached) Watch(ctx context.Context, _ client.Selector, _ string) (<-chan watch.Event, error) {
	if len(c.lists) == 0 {
		<-ctx.Done()
	}
	return nil, apierrors.NewResourceExpired("over")
}

// A list from a cache is handled only if it is the first one: later it is not newer than what was handled.
func TestCachedLists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var got []string
		f := follow.Follower{Client: &cached{lists: []string{client.CachedRevision, "7", client.CachedRevision, "9"}},
			Clock: clock.RealClock{}, Log: zap.NewNop()}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Follow(ctx, client.Selector{Resource: client.ConfigMaps}, follow.Handler{
				List: func(_ context.Context, objs []client.Object) {
					if got = append(got, objs[0].GetResourceVersion()); len(got) == 3 {
						stop()
					}
				},
			})
		}()
		<-done
		if len(got) != 3 || got[0] != client.CachedRevision || got[1] != "7" || got[2] != "9" {
			t.Errorf("handled %v", got)
		}
	})
}
