package apiserver

import (
	"net/http"

	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

// gate applies flow.Gate to handlers.
type gate struct {
	*flow.Gate
	fail func(w http.ResponseWriter, r *http.Request, err error)
}

// limited applies the limit of requests in flight and the request timeout to do. Watches and streams have no timeout
// and their own limit.
func (g gate) limited(do verb) verb {
	return func(w http.ResponseWriter, r *http.Request, t target) error {
		if t.longRunning(r) {
			if request.IsWatch(r, t.ref) { // as upstream, only its beginning needs a seat; a stream needs none
				leave, err := g.Seat(r.Context(), w.Header(), r, t.ref)
				if err != nil {
					return err
				}
				leave()
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

// withSeat takes a seat for each request for a non-resource path.
func (g gate) withSeat(next http.Handler) http.Handler {
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
