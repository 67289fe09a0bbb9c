// Package admin serves the endpoints that only admins may use, which administer the process and its node. It also signs
// in browsers: an admin gets a code, which the page exchanges once for a token (login.go).
package admin

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/entry"
	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/request"
	"monopod/apiserver/status"
)

// Config configures the endpoints. An endpoint whose field is nil returns 404.
type Config struct {
	// Access provides the certificates of Certs.
	Access *entry.Entry
	// About describes the process.
	About func(ctx context.Context) status.Process
	// SignIn returns the token of an admin, or the view token, for pages that sign in with a code.
	SignIn func(view bool) (token string, err error)
	// Recent returns the last lines of the log.
	Recent func() []byte
	// Snapshot creates a snapshot of the state, and returns its description.
	Snapshot func() (any, error)
	// Shutdown stops the pods of this process' node.
	Shutdown http.Handler
	// Images shows and changes the images of this process' node.
	Images http.Handler
}

// Admin handles the requests of admins.
type Admin struct {
	cfg   Config
	out   *codec.Responder
	codes *codes
	log   *zap.Logger
}

// New returns an Admin that answers through out.
func New(cfg Config, out *codec.Responder, c clock.PassiveClock, log *zap.Logger) *Admin {
	return &Admin{cfg, out, newCodes(c), log}
}

// refused sends a 404 error if the endpoint is disabled, or a 403 error with the reason unless the user is an admin. It
// reports whether it sent an error.
func (a *Admin) refused(w http.ResponseWriter, r *http.Request, disabled bool, reason string) bool {
	switch {
	case disabled:
		a.out.Fail(w, r, request.ErrNotFound())
	case !slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters):
		a.out.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(reason)))
	default:
		return false
	}
	return true
}

// Certs sends the certificates in use. A POST first replaces them and the tokens.
func (a *Admin) Certs(w http.ResponseWriter, r *http.Request) {
	if a.refused(w, r, a.cfg.Access == nil, "only admins may read and replace certificates") {
		return
	}
	if r.Method == http.MethodPost {
		if err := a.cfg.Access.Rotate(); err != nil {
			a.out.Fail(w, r, err)
			return
		}
		a.log.Info("certificates and tokens replaced")
	}
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a.cfg.Access.Certificates()))
}

// Status describes the process.
func (a *Admin) Status(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.About == nil, "only admins may read the status of the process") {
		a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a.cfg.About(r.Context())))
	}
}

// Log sends the last lines of the log.
func (a *Admin) Log(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Recent == nil, "only admins may read the log") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write(a.cfg.Recent())
	}
}

// Snapshot creates a snapshot of the state and sends its description.
func (a *Admin) Snapshot(w http.ResponseWriter, r *http.Request) {
	if a.refused(w, r, a.cfg.Snapshot == nil, "only admins may create snapshots") {
		return
	}
	snapshot, err := a.cfg.Snapshot()
	if err != nil {
		a.out.Fail(w, r, err)
		return
	}
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(snapshot))
}

// Shutdown stops the pods of the node; a GET returns the progress.
func (a *Admin) Shutdown(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Shutdown == nil, "only admins may shut down a node") {
		a.cfg.Shutdown.ServeHTTP(w, r)
	}
}

// Images lists and changes the images of the node.
func (a *Admin) Images(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Images == nil, "only admins may read and change the images of a node") {
		a.cfg.Images.ServeHTTP(w, r)
	}
}
