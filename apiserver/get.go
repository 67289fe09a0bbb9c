package apiserver

import (
	"net/http"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/store"
)

// get answers one object, or what a subresource makes of it.
func (s *Server) get(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.answerFor(t); ok {
		return s.getAnswer(w, r, t, a)
	}
	switch t.ref.Subresource {
	case "", "status", "ephemeralcontainers", "resize":
		return s.getObject(w, r, t)
	case "scale":
		return s.getScale(w, r, t)
	}
	return s.streams.Stream(w, r, t.ref)
}

func (s *Server) getScale(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := codec.Negotiate(r, "PartialObjectMetadata")
	if err != nil {
		return err
	}
	scale, err := s.registry.Get(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, scale)
}

func (s *Server) getObject(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := codec.Negotiate(r, "Table", "PartialObjectMetadata")
	if err != nil {
		return err
	}
	e, err := s.registry.Entry(r.Context(), t.ref)
	if err != nil {
		return err
	}
	v, err := s.out.Shape(r, t.res, f, e)
	if err != nil {
		return err
	}
	s.out.Send(w, r, f, http.StatusOK, v)
	return nil
}

// answer sends an object that a write returned. A Scale has no Table.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f codec.Format, t target, code int, obj registry.Object) error {
	if f.As == "Table" && t.ref.Subresource == "scale" {
		f.As = ""
	}
	e := &store.Entry{Object: obj}
	if f.Media != codec.TypeProtobuf {
		var err error
		if e.JSON, err = s.registry.JSON(r.Context(), obj); err != nil {
			return err
		}
	}
	v, err := s.out.Shape(r, t.res, f, e)
	if err != nil {
		return err
	}
	s.out.Send(w, r, f, code, v)
	return nil
}
