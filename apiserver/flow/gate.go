// Package flow shares the server among its users. It limits the number of requests, watches and streams in
// flight, the memory for their bodies, and how long a client may delay the server.
package flow

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/flow/fair"
)

// Gate limits requests in flight, the memory for their bodies, watches and streams, and shares these limits
// fairly among users.
type Gate struct {
	limits  Limits
	reading *fair.Seats // of each limit, one user can have three quarters:
	writing *fair.Seats // a body that never ends keeps its seat for a minute
	open    fair.Tally  // watches and streams by user
	bodies  budget

	longRunning *prometheus.GaugeVec
}

// New returns a Gate with limits l, whose metrics are in reg.
func New(l Limits, c clock.Clock, reg prometheus.Registerer) *Gate {
	l = l.complete()
	limit := func(seats int) *fair.Seats {
		return fair.New(fair.Config{Seats: seats, PerUser: seats - seats/4, Queue: queueLength, Wait: min(queueWait, l.RequestTimeout), Clock: c})
	}
	g := &Gate{
		limits: l, reading: limit(l.MaxRequestsInflight), writing: limit(l.MaxMutatingRequestsInflight), bodies: newBudget(l, c),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams that are open.",
		}, []string{"verb", "resource", "subresource"}),
	}
	reg.MustRegister(g.longRunning)
	for kind, seats := range map[string]*fair.Seats{"readOnly": g.reading, "mutating": g.writing} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests in flight that count towards the limit.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, func() float64 { return float64(seats.Taken()) }))
	}
	return g
}

// MinWatchTime is the minimum duration of a watch whose client sets no timeout.
func (g *Gate) MinWatchTime() time.Duration { return g.limits.MinRequestTimeout }

// Stay is what a request in flight holds.
type Stay struct {
	cancel  context.CancelFunc
	seats   *fair.Seats // nil: no seat
	user    string
	account *account
}

// Leave returns everything.
func (s *Stay) Leave() {
	if s.account != nil {
		s.account.Close()
	}
	if s.seats != nil {
		s.seats.Leave(s.user, 1)
	}
	s.cancel()
}

// Enter waits until the limits admit a request that is not a watch or a stream, and returns a context with the
// request's deadline and the memory for its body. Requests of admins and nodes, which must not be blocked, need
// no seat.
func (g *Gate) Enter(r *http.Request) (context.Context, Stay, error) {
	limit, err := g.timeLimit(r)
	if err != nil {
		return nil, Stay{}, err
	}
	var in Stay
	var ctx context.Context
	ctx, in.cancel = context.WithTimeout(r.Context(), limit)
	if in.seats, err = g.seat(ctx, r); err == nil {
		in.user = auth.UserOf(ctx).Name
		err = ctx.Err()
	}
	if err != nil {
		in.Leave()
		return nil, Stay{}, err
	}
	ctx, in.account = g.bodies.open(ctx)
	return ctx, in, nil
}

// seat waits for a seat and returns the seats that it belongs to; nil: the request needs none.
func (g *Gate) seat(ctx context.Context, r *http.Request) (*fair.Seats, error) {
	user := auth.UserOf(ctx)
	if exempt(user) {
		return nil, nil
	}
	seats := g.writing
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		seats = g.reading
	}
	if !seats.Enter(ctx, user.Name, 1) {
		return nil, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
	}
	return seats, nil
}

// Pass waits for a seat, which the request holds until leave is called; it does not limit the request's time or
// body.
func (g *Gate) Pass(r *http.Request) (leave func(), err error) {
	seats, err := g.seat(r.Context(), r)
	if seats == nil || err != nil {
		return func() {}, err
	}
	name := auth.UserOf(r.Context()).Name
	return func() { seats.Leave(name, 1) }, nil
}
