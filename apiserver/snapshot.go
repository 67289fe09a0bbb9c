package apiserver

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/codec"
)

// snapshot has a copy of the state made, for admins, and answers with what it is.
func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) {
	if s.Snapshot == nil {
		s.notFound(w, r)
		return
	}
	if !slices.Contains(auth.UserOf(r.Context()).Groups, auth.Masters) {
		s.out.Fail(w, r, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("only admins make snapshots")))
		return
	}
	made, err := s.Snapshot()
	if err != nil {
		s.out.Fail(w, r, err)
		return
	}
	s.out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(made))
}
