package apiserver

import (
	"net/http"

	"monopod/apiserver/codec"
	"monopod/apiserver/registry"
	"monopod/store"
)

// get sends one object, or the object of another kind that a subresource represents (a Scale), or opens a stream.
func (s *Server) get(w http.ResponseWriter, r *http.Request, t target) error {
	if a, ok := s.computed.of(t); ok {
		f, obj, err := s.computed.get(r, t, a)
		if err != nil {
			return err
		}
		return s.answer(w, r, f, t, http.StatusOK, obj)
	}
	if t.sub != nil && (!t.sub.Part || !t.sub.Can("get")) {
		return s.streams.Stream(w, r, t.ref)
	}
	if t.otherKind() {
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
	f, err := codec.NegotiateAnswer(r, t.res, "Table", "PartialObjectMetadata")
	if err != nil {
		return err
	}
	e, err := s.registry.Entry(r.Context(), t.ref)
	if err != nil {
		return err
	}
	return s.out.SendEntry(w, r, f, t.res, e)
}

// answer sends an object that is not stored as an entry, such as the result of a write. A Scale has no Table.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f codec.Format, t target, code int,
	obj registry.Object) error {
	if f.As == "Table" && t.otherKind() {
		f.As = ""
	}
	var data []byte
	if f.Media != codec.TypeProtobuf {
		var err error
		if data, err = s.registry.JSON(r.Context(), obj); err != nil {
			return err
		}
	}
	v, err := s.out.Shape(r, t.res, f, store.NewEncoded(store.Key{}, 0, obj, data))
	if err != nil {
		return err
	}
	s.out.Send(w, r, f, code, v)
	return nil
}
