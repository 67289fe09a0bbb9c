package apiserver

import (
	"net/http"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/store"
)

// get answers with one object, or with the result of a subresource.
func (s *Server) get(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.answerFor(t); ok {
		return s.getAnswer(w, r, t, a)
	}
	switch {
	case t.sub != nil && (!t.sub.Part || !t.sub.Can("get")):
		return s.streams.Stream(w, r, t.ref)
	case t.another():
		return s.getAnother(w, r, t)
	}
	return s.getObject(w, r, t)
}

// getAnother answers with an object of another kind that represents the stored one: a Scale.
func (s *Server) getAnother(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := codec.Negotiate(r, "PartialObjectMetadata")
	if err != nil {
		return err
	}
	obj, err := s.registry.Get(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.answer(w, r, f, t, http.StatusOK, obj)
}

func (s *Server) getObject(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadata")
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
	if f.As == "Table" && t.another() {
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
