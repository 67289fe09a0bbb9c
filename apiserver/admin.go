package apiserver

import (
	"errors"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"

	"github.com/go-chi/chi/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/access/login"
	"monopod/apiserver/codec"
	"monopod/apiserver/request"
)

// admin serves administration: certificates, snapshots, the node's shutdown, the configuration, and debugging.
type admin struct {
	cfg  Config
	out  *codec.Responder
	desk *login.Desk
}

// refused sends 404 if the endpoint is off, and 403 with the reason why unless the user is an admin. It returns whether
// it sent an error.
func (a *admin) refused(w http.ResponseWriter, r *http.Request, off bool, why string) bool {
	switch {
	case off:
		a.out.Fail(w, r, request.ErrNotFound())
	case !slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters):
		a.out.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(why)))
	default:
		return false
	}
	return true
}

// certs answers a GET with the certificates in use; a POST first replaces them and the tokens. It is for admins.
func (a *admin) certs(w http.ResponseWriter, r *http.Request) {
	if a.refused(w, r, a.cfg.Access == nil, "only admins may read and replace certificates") {
		return
	}
	if r.Method == http.MethodPost {
		if err := a.cfg.Access.Rotate(); err != nil {
			a.out.Fail(w, r, err)
			return
		}
		a.cfg.Log.Info("certificates and tokens replaced")
	}
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a.cfg.Access.Certificates()))
}

// status describes the process, for admins.
func (a *admin) status(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.About == nil, "only admins may read the status of the process") {
		a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a.cfg.About(r.Context())))
	}
}

// log answers with the last lines of the log, for admins.
func (a *admin) log(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Recent == nil, "only admins may read the log") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Write(a.cfg.Recent())
	}
}

// snapshot creates a snapshot of the state, for admins, and answers with its description.
func (a *admin) snapshot(w http.ResponseWriter, r *http.Request) {
	if a.refused(w, r, a.cfg.Snapshot == nil, "only admins may create snapshots") {
		return
	}
	made, err := a.cfg.Snapshot()
	if err != nil {
		a.out.Fail(w, r, err)
		return
	}
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(made))
}

// shutdown makes the node stop its pods, for admins, or answers with its progress.
func (a *admin) shutdown(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Shutdown == nil, "only admins may shut down a node") {
		a.cfg.Shutdown.ServeHTTP(w, r)
	}
}

// images shows and changes the images of the node, for admins.
func (a *admin) images(w http.ResponseWriter, r *http.Request) {
	if !a.refused(w, r, a.cfg.Images == nil, "only admins may read and change the images of a node") {
		a.cfg.Images.ServeHTTP(w, r)
	}
}

// profiles serves Go's profiles to users who may read these paths.
func profiles(r chi.Router) {
	r.Get("/debug/pprof", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/debug/pprof/", http.StatusMovedPermanently)
	})
	r.HandleFunc("/debug/pprof/*", pprof.Index)
	r.Get("/debug/pprof/cmdline", pprof.Cmdline)
	r.Get("/debug/pprof/profile", pprof.Profile)
	r.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	r.Get("/debug/pprof/trace", pprof.Trace)
}

// Version is the Kubernetes version whose API this is.
var Version = version.Info{
	Major: "1", Minor: "37", GitVersion: "v1.37.2+monopod", GitTreeState: "clean",
	GoVersion: runtime.Version(), Compiler: runtime.Compiler,
	Platform: runtime.GOOS + "/" + runtime.GOARCH,
}

func (a *admin) version(w http.ResponseWriter, r *http.Request) {
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(Version))
}

func (a *admin) configz(w http.ResponseWriter, r *http.Request) {
	a.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a.cfg.Configz))
}

func (a *admin) debug(w http.ResponseWriter, r *http.Request) {
	if a.cfg.Debug != nil {
		if h := a.cfg.Debug(chi.URLParam(r, "name")); h != nil {
			h.ServeHTTP(w, r)
			return
		}
	}
	a.out.Fail(w, r, request.ErrNotFound())
}
