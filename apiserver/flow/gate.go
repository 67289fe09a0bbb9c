// Package flow shares the server among its users: how many requests, watches and
// streams are under way, how much memory their bodies take, and how long a client
// may keep the server waiting.
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

// Gate shares the server among its users: seats for requests under way, memory for
// their bodies, watches and streams.
type Gate struct {
	limits  Limits
	reading *fair.Room // a user leaves a quarter of each room to the others:
	writing *fair.Room // bodies that never end keep their seats for a minute
	open    fair.Tally // watches and streams, by user
	bodies  budget

	longRunning *prometheus.GaugeVec
}

// New returns a gate with limits l, whose metrics are in reg.
func New(l Limits, c clock.Clock, reg prometheus.Registerer) *Gate {
	l = l.complete()
	room := func(seats int) *fair.Room {
		return fair.New(fair.Config{Seats: seats, PerUser: seats - seats/4, Queue: queueLength, Wait: min(queueWait, l.RequestTimeout), Clock: c})
	}
	g := &Gate{
		limits: l, reading: room(l.MaxRequestsInflight), writing: room(l.MaxMutatingRequestsInflight), bodies: newBudget(l, c),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests", Help: "Watches and streams under way.",
		}, []string{"verb", "resource", "subresource"}),
	}
	reg.MustRegister(g.longRunning)
	for kind, room := range map[string]*fair.Room{"readOnly": g.reading, "mutating": g.writing} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests", Help: "Requests under way that count towards the limit.",
			ConstLabels: prometheus.Labels{"request_kind": kind},
		}, func() float64 { return float64(room.Inside()) }))
	}
	return g
}

// MinWatchTime is how long a watch may take at least, whose client does not say.
func (g *Gate) MinWatchTime() time.Duration { return g.limits.MinRequestTimeout }

// Stay is what a request holds while it is under way.
type Stay struct {
	cancel  context.CancelFunc
	room    *fair.Room // nil: it took no seat
	user    string
	account *account
}

// Leave gives it back.
func (s *Stay) Leave() {
	if s.account != nil {
		s.account.Close()
	}
	if s.room != nil {
		s.room.Leave(s.user, 1)
	}
	s.cancel()
}

// Enter waits until there is room for a request that is no watch and no stream, and
// returns the context in which it has its time and memory for its body. The requests
// of admins and nodes, who have to get through, take no seat.
func (g *Gate) Enter(r *http.Request) (context.Context, Stay, error) {
	limit, err := g.timeLimit(r)
	if err != nil {
		return nil, Stay{}, err
	}
	var in Stay
	var ctx context.Context
	ctx, in.cancel = context.WithTimeout(r.Context(), limit)
	if in.room, err = g.seat(ctx, r); err == nil {
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

// seat waits for a seat in the room that it returns; nil: the request needs none.
func (g *Gate) seat(ctx context.Context, r *http.Request) (*fair.Room, error) {
	user := auth.UserOf(ctx)
	if exempt(user) {
		return nil, nil
	}
	room := g.writing
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		room = g.reading
	}
	if !room.Enter(ctx, user.Name, 1) {
		return nil, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1)
	}
	return room, nil
}

// Pass waits for a seat, which the request has until leave is called; it bounds
// neither its time nor its body.
func (g *Gate) Pass(r *http.Request) (leave func(), err error) {
	room, err := g.seat(r.Context(), r)
	if room == nil || err != nil {
		return func() {}, err
	}
	name := auth.UserOf(r.Context()).Name
	return func() { room.Leave(name, 1) }, nil
}
