package apiserver

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

func (s *Server) openapiIndex(w http.ResponseWriter, r *http.Request) {
	s.document(w, r, s.openapi.Index)
}

func (s *Server) openapiGroup(w http.ResponseWriter, r *http.Request) {
	s.document(w, r, func() ([]byte, error) { return s.openapi.Document(chi.URLParam(r, "*")) })
}

func (s *Server) document(w http.ResponseWriter, r *http.Request, get func() ([]byte, error)) {
	doc, err := get()
	switch {
	case err != nil:
		s.fail(w, r, err)
	case doc == nil:
		s.notFound(w, r)
	default:
		s.send(w, r, format{}, http.StatusOK, doc)
	}
}
