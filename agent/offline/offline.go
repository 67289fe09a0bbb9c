// Package offline lets a node work without its servers: what the agent reads from them is kept on disk, and answers
// its reads while no server can be reached, also after a restart of the machine.
package offline

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

const (
	// keptRevision is the resourceVersion of a list from disk. A watch from it begins when a server answers again.
	keptRevision = "kept"
	// tryAgain is how long reads are answered from disk after a request that reached no server, without another attempt.
	// The renewal of the node's lease tries every 10 s.
	tryAgain = 10 * time.Second
)

// Config configures a Client; all fields are required.
type Config struct {
	Servers client.Client
	// New returns an empty object of a resource.
	New   func(resource schema.GroupVersionResource, subresource string) client.Object
	Dir   string // readable only by its owner; it contains Secrets
	Clock clock.Clock
	Log   *zap.Logger
}

// Client is the API of the servers. While none can be reached, Get and List return what they last returned, and a Watch
// waits. Writes fail.
type Client struct {
	cfg   Config
	kept  kept
	guard *guard.Guard

	mu   sync.Mutex    // guards the fields below
	away time.Time     // of the last request that reached no server; zero: the last one reached a server
	gone time.Time     // of the first such request
	back chan struct{} // closed when a server answers again
}

var _ client.Client = (*Client)(nil)

// New returns a Client.
func New(cfg Config) *Client {
	return &Client{cfg: cfg, guard: guard.Logging(cfg.Log), kept: kept{dir: cfg.Dir, empty: cfg.New, log: cfg.Log}}
}

// unreachable reports whether no server answered a request.
func unreachable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		switch status.Status().Code {
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
		return false
	}
	return errors.As(err, new(*url.Error))
}

// asked records the result of a request, and reports whether no server answered it.
func (c *Client) asked(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	away := unreachable(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	was := !c.away.IsZero()
	switch {
	case away && !was:
		c.cfg.Log.Warn("no server answers: the pods of this node run on, with what is known of them", zap.Error(err))
		c.back, c.gone = make(chan struct{}), c.cfg.Clock.Now()
	case !away && was:
		c.cfg.Log.Info("a server answers again")
		close(c.back)
	}
	if c.away = (time.Time{}); away {
		c.away = c.cfg.Clock.Now()
	}
	return away
}

// waiting reports whether reads are answered from disk without an attempt.
func (c *Client) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.away.IsZero() && c.cfg.Clock.Since(c.away) < tryAgain
}

// answered returns a channel that is closed when a server has answered after the last request that none answered.
func (c *Client) answered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away.IsZero() {
		closed := make(chan struct{})
		close(closed)
		return closed
	}
	return c.back
}

// Away returns when the servers stopped answering; zero: the last request reached one.
func (c *Client) Away() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away.IsZero() {
		return time.Time{}
	}
	return c.gone
}

// Get implements client.Client.
func (c *Client) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if ref.Subresource != "" {
		obj, err := c.cfg.Servers.Get(ctx, ref)
		c.asked(ctx, err)
		return obj, err
	}
	if c.waiting() {
		if obj := c.kept.object(ref); obj != nil {
			return obj, nil
		}
	}
	obj, err := c.cfg.Servers.Get(ctx, ref)
	switch {
	case c.asked(ctx, err):
		if kept := c.kept.object(ref); kept != nil {
			return kept, nil
		}
	case err == nil:
		c.kept.got(ref, obj)
	case apierrors.IsNotFound(err):
		c.kept.forget(ref)
	}
	return obj, err
}

// List implements client.Client.
func (c *Client) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if c.waiting() {
		if objs, ok := c.kept.list(sel); ok {
			return objs, keptRevision, nil
		}
	}
	objs, revision, err := c.cfg.Servers.List(ctx, sel)
	if c.asked(ctx, err) {
		if kept, ok := c.kept.list(sel); ok {
			return kept, keptRevision, nil
		}
	}
	if err == nil {
		c.kept.listed(sel, objs)
	}
	return objs, revision, err
}

// Watch implements client.Client.
func (c *Client) Watch(ctx context.Context, sel client.Selector, revision string) (<-chan watch.Event, error) {
	if revision == keptRevision {
		select {
		case <-c.answered():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return nil, apierrors.NewResourceExpired("a server answers again")
	}
	events, err := c.cfg.Servers.Watch(ctx, sel, revision)
	c.asked(ctx, err)
	if err != nil {
		return nil, err
	}
	out := make(chan watch.Event)
	c.guard.Spawn("offline", func() {
		defer close(out)
		for e := range events {
			if obj, ok := e.Object.(client.Object); ok {
				c.kept.changed(sel, e.Type, obj)
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	})
	return out, nil
}

// Create implements client.Client.
func (c *Client) Create(ctx context.Context, obj client.Object) (client.Object, error) {
	created, err := c.cfg.Servers.Create(ctx, obj)
	c.asked(ctx, err)
	return created, err
}

// Update implements client.Client. A request for a token that no server answers returns the last token for the same pod
// and audience, even if it has expired: the servers that would refuse it are away.
func (c *Client) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	var token *authenticationv1.TokenRequest
	if ref.Resource == client.ServiceAccounts && ref.Subresource == "token" {
		inner := change
		change = func(cur client.Object) (client.Object, error) {
			next, err := inner(cur)
			token, _ = next.(*authenticationv1.TokenRequest)
			return next, err
		}
	}
	next, err := c.cfg.Servers.Update(ctx, ref, change)
	away := c.asked(ctx, err)
	if token != nil && away {
		if kept := c.kept.token(ref, &token.Spec); kept != nil {
			return kept, nil
		}
	}
	if issued, ok := next.(*authenticationv1.TokenRequest); ok && err == nil && token != nil {
		c.kept.issued(ref, &token.Spec, issued)
	}
	return next, err
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	last, err := c.cfg.Servers.Delete(ctx, ref, opts)
	c.asked(ctx, err)
	return last, err
}

// Retain removes the lists of a resource that are not wanted any more.
func (c *Client) Retain(resource schema.GroupVersionResource, wanted []client.Selector) {
	c.kept.retain(resource, wanted)
}

// wholeCluster reports whether a list is too large, and changes too often, to be kept on a node: the pods of others.
func wholeCluster(sel client.Selector) bool {
	if sel.Resource != client.Pods {
		return false
	}
	if sel.Fields == nil {
		return true
	}
	_, own := sel.Fields.RequiresExactMatch("spec.nodeName")
	return !own
}
