package apiserver

import (
	"net/http"
	"runtime"

	"github.com/go-chi/chi/v5"
	"k8s.io/apimachinery/pkg/version"

	"monopod/apiserver/codec"
	"monopod/apiserver/request"
)

// Version is the Kubernetes version that /version returns.
var Version = version.Info{
	Major: "1", Minor: "37", GitVersion: "v1.37.2+monopod", GitTreeState: "clean",
	GoVersion: runtime.Version(), Compiler: runtime.Compiler,
	Platform: runtime.GOOS + "/" + runtime.GOARCH,
}

func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(Version))
}

func (s *Server) configz(w http.ResponseWriter, r *http.Request) {
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(s.cfg.Configz))
}

// debug serves /debug/controllers/<name>.
func (s *Server) debug(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Debug != nil {
		if h := s.cfg.Debug(chi.URLParam(r, "name")); h != nil {
			h.ServeHTTP(w, r)
			return
		}
	}
	s.out.Fail(w, r, request.ErrNotFound())
}
