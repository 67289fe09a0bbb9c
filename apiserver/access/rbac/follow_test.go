package rbac_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"monopod/apiserver/access/rbac"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// closing is an empty API whose watches end at once.
type closing struct {
	client.Client
	lists atomic.Int64
}

func (c *closing) List(context.Context, client.Selector) ([]client.Object, string, error) {
	c.lists.Add(1)
	return nil, "1", nil
}

func (c *closing) Watch(context.Context, client.Selector, string) (<-chan watch.Event, error) {
	events := make(chan watch.Event)
	close(events)
	return events, nil
}

func TestPausesBeforeItListsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, z := &closing{}, rbac.New(rbac.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- z.Run(ctx, c) }()
		if ok, _, err := z.Authorize(ctx, auth.Attributes{User: auth.User{Name: "u"}, Verb: "get", Resource: "pods"}); ok ||
			err != nil {
			t.Error(ok, err)
		}
		time.Sleep(time.Hour)
		if n := c.lists.Load(); n < 4*60 || n > 4*150 {
			t.Errorf("%d lists of four kinds in an hour", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// broken is an API that panics.
type broken struct{ client.Client }

func (broken) List(context.Context, client.Selector) ([]client.Object, string, error) {
	panic("list")
}

// A panic becomes an error, after which the supervisor restarts Run.
func TestPanicIsAnError(t *testing.T) {
	t.Parallel()
	z := rbac.New(rbac.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _ = z.Authorize(ctx, auth.Attributes{})
	if err := z.Run(t.Context(), broken{}); err == nil || err.Error() != "panic: list" {
		t.Errorf("got %v", err)
	}
}
