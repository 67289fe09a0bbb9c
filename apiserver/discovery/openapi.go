package discovery

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"monopod/apiserver/codec"
	"monopod/apiserver/discovery/openapi"
	"monopod/apiserver/request"
)

// Media types of OpenAPI documents in protobuf. Older clients write an @ before the version, which is not valid
// in a media type.
const (
	typeOpenAPI2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	typeOpenAPI3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// hashedFor is how long clients may cache a document by its hash (upstream: a year).
const hashedFor = 365 * 24 * time.Hour

// OpenapiIndex answers /openapi/v3.
func (d *Documents) OpenapiIndex(w http.ResponseWriter, r *http.Request) {
	index, err := d.openapi.Index()
	if err == nil {
		index, err = d.withRemotes(index)
	}
	if err == nil {
		err = codec.Tagged(w, r, codec.TypeJSON, openapi.Hash(index), func() ([]byte, error) { return index, nil })
	}
	if err != nil {
		d.Out.Fail(w, r, err)
	}
}

// OpenapiGroup answers /openapi/v3/<name>. A response to a request with the document's hash can be cached for
// good; a request with another hash is redirected.
func (d *Documents) OpenapiGroup(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "*")
	if h := d.remote(name); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	doc, err := d.openapi.V3(name)
	switch hash := r.URL.Query().Get("hash"); {
	case err != nil:
		d.Out.Fail(w, r, err)
		return
	case doc == nil:
		d.Out.Fail(w, r, request.ErrNotFound())
		return
	case hash != "" && hash != doc.Hash:
		http.Redirect(w, r, openapi.URL(name, doc.Hash), http.StatusMovedPermanently)
		return
	case hash != "":
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", d.Clock.Now().Add(hashedFor).UTC().Format(http.TimeFormat))
	}
	d.document(w, r, doc, typeOpenAPI3)
}

// OpenapiV2 answers /openapi/v2.
func (d *Documents) OpenapiV2(w http.ResponseWriter, r *http.Request) {
	doc, err := d.openapi.V2()
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	d.document(w, r, doc, typeOpenAPI2)
}

// document sends doc as JSON or protobuf. Both have the same ETag, as upstream; Vary distinguishes them.
func (d *Documents) document(w http.ResponseWriter, r *http.Request, doc *openapi.Document, protobuf string) {
	w.Header().Add("Vary", "Accept")
	var err error
	switch codec.Preferred(r.Header.Get("Accept"), codec.TypeJSON, protobuf) {
	case codec.TypeJSON:
		err = codec.Tagged(w, r, codec.TypeJSON, doc.Hash, func() ([]byte, error) { return doc.JSON, nil })
	case protobuf:
		err = codec.Tagged(w, r, protobuf, doc.Hash, doc.Protobuf)
	default:
		w.WriteHeader(http.StatusNotAcceptable)
	}
	if err != nil {
		d.Out.Fail(w, r, err)
	}
}
