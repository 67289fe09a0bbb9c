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
	// tryAgain is how long reads are answered from the cache after a request that reached no server, without another
	// attempt: the renewal of the node's lease tries more often.
	tryAgain = time.Minute
	// cachedTokenLife is the life of a token from the cache, so that another one is requested soon.
	cachedTokenLife = time.Minute
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
	cache cache
	guard *guard.Guard

	mu   sync.Mutex    // guards the fields below
	away time.Time     // of the last request that reached no server; zero: the last one reached a server
	gone time.Time     // of the first such request
	err  error         // of the last such request
	back chan struct{} // closed when a server answers again
}

var _ client.Client = (*Client)(nil)

// New returns a Client. Its reads wait until Run runs, which writes what they return.
func New(cfg Config) *Client {
	return &Client{cfg: cfg, guard: guard.Logging(cfg.Log), cache: cache{dir: cfg.Dir, empty: cfg.New, log: cfg.Log,
		writes: make(chan func()), ended: make(chan struct{}), followed: map[schema.GroupVersionResource]bool{}}}
}

// Run writes to the disk until ctx ends.
func (c *Client) Run(ctx context.Context) error {
	c.cache.run(ctx)
	return nil
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

// record records the result of a request, and reports whether no server answered it.
func (c *Client) record(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	away := unreachable(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	was := !c.away.IsZero()
	switch {
	case away && !was:
		c.cfg.Log.Warn("no server answers: the pods of this node keep running", zap.Error(err))
		c.back, c.gone = make(chan struct{}), c.cfg.Clock.Now()
	case !away && was:
		c.cfg.Log.Info("a server answers again")
		close(c.back)
	}
	if c.away, c.err = (time.Time{}), nil; away {
		c.away, c.err = c.cfg.Clock.Now(), err
	}
	return away
}

// waiting returns the last error if requests are answered from the cache without an attempt, otherwise nil.
func (c *Client) waiting() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away.IsZero() || c.cfg.Clock.Since(c.away) >= tryAgain {
		return nil
	}
	return c.err
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
		c.record(ctx, err)
		return obj, err
	}
	cached := func(err error) (client.Object, error) {
		if obj := c.cache.object(ref); obj != nil {
			return obj, nil
		}
		if c.cache.isMissing(ref) {
			return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
		}
		return nil, err
	}
	if err := c.waiting(); err != nil {
		return cached(err)
	}
	obj, err := c.cfg.Servers.Get(ctx, ref)
	switch {
	case c.record(ctx, err):
		return cached(err)
	case err == nil:
		c.cache.do(func() { c.cache.putObject(ref, obj) })
	case apierrors.IsNotFound(err):
		c.cache.do(func() { c.cache.forget(ref) })
	}
	return obj, err
}

// Cached returns an object as it was when it was last read; nil if it never was.
func (c *Client) Cached(ref client.Ref) client.Object { return c.cache.object(ref) }

// List implements client.Client.
func (c *Client) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if err := c.waiting(); err != nil {
		return c.cached(sel, err)
	}
	objs, revision, err := c.cfg.Servers.List(ctx, sel)
	if c.record(ctx, err) {
		return c.cached(sel, err)
	}
	if err == nil {
		c.cache.do(func() { c.cache.putList(sel, objs) })
	}
	return objs, revision, err
}

func (c *Client) cached(sel client.Selector, err error) ([]client.Object, string, error) {
	if objs, ok := c.cache.list(sel); ok {
		return objs, client.CachedRevision, nil
	}
	return nil, "", err
}

// Watch implements client.Client.
func (c *Client) Watch(ctx context.Context, sel client.Selector, revision string) (<-chan watch.Event, error) {
	if revision == client.CachedRevision {
		select {
		case <-c.answered():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		return nil, apierrors.NewResourceExpired("a server answers again")
	}
	events, err := c.cfg.Servers.Watch(ctx, sel, revision)
	c.record(ctx, err)
	if err != nil {
		return nil, err
	}
	out := make(chan watch.Event)
	c.guard.Spawn("offline", func() {
		defer close(out)
		for e := range events {
			if obj, ok := e.Object.(client.Object); ok {
				c.cache.do(func() { c.cache.putChange(sel, e.Type, obj) })
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
	c.record(ctx, err)
	return created, err
}

// Update implements client.Client.
func (c *Client) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Resource == client.ServiceAccounts && ref.Subresource == "token" {
		return c.requestToken(ctx, ref, change)
	}
	next, err := c.cfg.Servers.Update(ctx, ref, change)
	c.record(ctx, err)
	return next, err
}

// requestToken requests a token of a service account. If no server answers, it returns the last one for the same pod
// and audience, even if that has expired: the servers that would refuse it are away.
func (c *Client) requestToken(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	requested, err := change(&authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	spec := requested.(*authenticationv1.TokenRequest).Spec
	cached := func(err error) (client.Object, error) {
		token := c.cache.token(ref, &spec)
		if token == nil {
			return nil, err
		}
		token.Spec.ExpirationSeconds = new(int64(cachedTokenLife / time.Second))
		return token, nil
	}
	if err := c.waiting(); err != nil {
		return cached(err)
	}
	issued, err := c.cfg.Servers.Update(ctx, ref, change)
	if c.record(ctx, err) {
		return cached(err)
	}
	if token, ok := issued.(*authenticationv1.TokenRequest); ok && err == nil {
		c.cache.do(func() { c.cache.putToken(ref, &spec, token) })
	}
	return issued, err
}

// Delete implements client.Client.
func (c *Client) Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error) {
	last, err := c.cfg.Servers.Delete(ctx, ref, opts)
	c.record(ctx, err)
	return last, err
}

// Retain removes the lists of a resource that are not wanted any more.
func (c *Client) Retain(resource schema.GroupVersionResource, wanted []client.Selector) {
	c.cache.do(func() { c.cache.retain(resource, wanted) })
}

// wholeCluster reports whether a list is too large, and changes too often, to be in the cache: the pods of other nodes.
func wholeCluster(sel client.Selector) bool {
	return sel.Resource == client.Pods && !isOwnPods(sel)
}

// isOwnPods reports whether a selector is that of the pods of this node.
func isOwnPods(sel client.Selector) bool {
	if sel.Resource != client.Pods || sel.Fields == nil {
		return false
	}
	_, own := sel.Fields.RequiresExactMatch("spec.nodeName")
	return own
}
