package apiserver

import (
	"net/http"

	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

// gate applies the limits of requests to handlers.
type gate struct {
	*flow.Gate
	fail func(w http.ResponseWriter, r *http.Request, err error)
}

// bounded applies the limits of requests in flight and the request timeout to do. Watches and streams have no
// timeout and their own limit.
func (g gate) bounded(do verb) verb {
	return func(w http.ResponseWriter, r *http.Request, t target) error {
		if t.long(r) {
			if err := g.begin(w, r, t); err != nil {
				return err
			}
			done, err := g.Hold(r, t.ref)
			if err != nil {
				return err
			}
			defer done()
			return do(w, r, t)
		}
		ctx, in, err := g.Enter(w.Header(), r, t.ref)
		if err != nil {
			return err
		}
		defer in.Leave()
		return do(w, r.WithContext(ctx), t)
	}
}

// begin waits for a seat if the request is a watch: watches take one to begin, streams do not (as upstream).
func (g gate) begin(w http.ResponseWriter, r *http.Request, t target) error {
	if !request.IsWatch(r, t.ref) {
		return nil
	}
	leave, err := g.Seat(r.Context(), w.Header(), r, t.ref)
	if err == nil {
		leave()
	}
	return err
}

// seated gives requests for non-resource paths a seat.
func (g gate) seated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leave, err := g.Seat(r.Context(), w.Header(), r, client.Ref{})
		if err != nil {
			g.fail(w, r, err)
			return
		}
		defer leave()
		next.ServeHTTP(w, r)
	})
}
