// Package flow shares the server among its users. It limits the number of requests, watches and streams in
// flight, the memory for their bodies, and how long a client may delay the server.
//
//   - priority.go implements API Priority and Fairness: FlowSchemas classify requests into priority levels, each of
//     which has a share of the server's seats and queues of its own. The objects mean the same as in upstream's
//     k8s.io/apiserver/pkg/util/flowcontrol, except that levels borrow seats from each other at once, not every 10
//     seconds, so that an idle server does nothing.
//   - configure.go applies changes of these objects, and ensure.go keeps the objects that every cluster has up to date.
package flow

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/flow/fair"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

// Gate limits requests in flight, the memory for their bodies, watches and streams, and shares these limits
// fairly among priority levels and users.
type Gate struct {
	// Dispatcher limits the requests in flight.
	*Dispatcher

	limits   Limits
	open     fair.Tally // watches and streams by user
	bodies   budget
	inFlight [2]atomic.Int64 // requests: reading, mutating

	longRunning *prometheus.GaugeVec
}

// New returns a Gate with limits l, whose metrics are in reg.
func New(l Limits, c clock.Clock, reg prometheus.Registerer) *Gate {
	l = l.complete()
	g := &Gate{
		Dispatcher: NewDispatcher(
			DispatcherConfig{Seats: l.seats(), Wait: min(queueWait, l.RequestTimeout), Clock: c, Metrics: reg}),
		limits: l, bodies: newBudget(l, c),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams that are open.",
		}, []string{"verb", "resource", "subresource"}),
	}
	reg.MustRegister(g.longRunning)
	for i, kind := range []string{"readOnly", "mutating"} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests in flight that count towards the limit.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, func() float64 { return float64(g.inFlight[i].Load()) }))
	}
	return g
}

// MinWatchTime returns the minimum duration of a watch whose client sets no timeout.
func (g *Gate) MinWatchTime() time.Duration { return g.limits.MinRequestTimeout }

// Stay contains the resources that a request in flight holds.
type Stay struct {
	cancel  context.CancelFunc
	leave   func()
	account *account
}

// Leave returns everything.
func (s *Stay) Leave() {
	if s.account != nil {
		s.account.Close()
	}
	if s.leave != nil {
		s.leave()
	}
	s.cancel()
}

// Enter waits until the limits admit a request that is not a watch or a stream, and returns a context with the
// request's deadline and the memory for its body. It adds the headers of priority and fairness to h.
func (g *Gate) Enter(h http.Header, r *http.Request, ref client.Ref) (context.Context, Stay, error) {
	limit, err := g.timeLimit(r)
	if err != nil {
		return nil, Stay{}, err
	}
	var in Stay
	var ctx context.Context
	ctx, in.cancel = context.WithTimeout(r.Context(), limit)
	if in.leave, err = g.Seat(ctx, h, r, ref); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		in.Leave()
		return nil, Stay{}, err
	}
	ctx, in.account = g.bodies.open(ctx)
	return ctx, in, nil
}

// Seat waits for a seat, which the request holds until leave is called; it does not limit the request's time or body.
// It adds the headers of priority and fairness to h, which may be nil. ref is zero for a non-resource path.
func (g *Gate) Seat(ctx context.Context, h http.Header, r *http.Request, ref client.Ref) (leave func(), err error) {
	digest := Request{User: auth.UserOf(ctx), Verb: strings.ToLower(r.Method), Path: r.URL.Path}
	if ref.Resource.Resource != "" {
		digest.Verb, digest.Namespace, digest.Name = request.Verb(r, ref), ref.Namespace, ref.Name
		digest.Group, digest.Version, digest.Resource, digest.Subresource = ref.Resource.Group, ref.Resource.Version,
			ref.Resource.Resource, ref.Subresource
		if ref.Resource == client.Namespaces {
			digest.Namespace = ref.Name
		}
	}
	ticket := g.Dispatcher.Enter(ctx, h, &digest)
	if ticket == nil {
		return nil, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
	}
	current := &g.inFlight[1]
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		current = &g.inFlight[0]
	}
	current.Add(1)
	return func() {
		current.Add(-1)
		g.Dispatcher.Leave(ticket)
	}, nil
}

// Pass is Seat for a path of the kubelet's port.
func (g *Gate) Pass(r *http.Request) (leave func(), err error) {
	return g.Seat(r.Context(), nil, r, client.Ref{})
}
