package apiserver

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/access/auth"
)

// shutdown has the node stop its pods, for admins, or tells how far it is.
func (s *Server) shutdown(w http.ResponseWriter, r *http.Request) {
	switch {
	case s.Shutdown == nil:
		s.notFound(w, r)
	case !slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters):
		s.out.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("only admins shut a node down")))
	default:
		s.Shutdown.ServeHTTP(w, r)
	}
}
