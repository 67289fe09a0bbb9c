package discovery

import (
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"monopod/apiserver/codec"
	"monopod/apiserver/discovery/openapi"
	"monopod/apiserver/request"
)

// Media types of OpenAPI documents in protobuf. Older clients send an @ before the version, which is not valid in a
// media type.
const (
	typeOpenAPI2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	typeOpenAPI3 = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
)

// hashCacheTime is how long clients may cache a document by its hash (as upstream).
const hashCacheTime = 365 * 24 * time.Hour

// OpenapiIndex serves /openapi/v3.
func (d *Documents) OpenapiIndex(w http.ResponseWriter, r *http.Request) {
	index, err := d.openapi.Index()
	if err == nil {
		index, err = d.withRemotes(index)
	}
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	codec.Tagged(w, r, codec.TypeJSON, openapi.Hash(index), index)
}

// OpenapiGroup serves /openapi/v3/<name>. Clients may cache the response to a request with the document's hash; a
// request with another hash is redirected.
func (d *Documents) OpenapiGroup(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "*")
	if h := d.remote(name); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	protobuf, ok := prefersProtobuf(w, r, typeOpenAPI3)
	if !ok {
		return
	}
	doc, err := d.openapi.V3(name, protobuf)
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
		w.Header().Set("Expires", d.Clock.Now().Add(hashCacheTime).UTC().Format(http.TimeFormat))
	}
	d.document(w, r, doc, protobuf, typeOpenAPI3)
}

// OpenapiV2 serves /openapi/v2.
func (d *Documents) OpenapiV2(w http.ResponseWriter, r *http.Request) {
	protobuf, ok := prefersProtobuf(w, r, typeOpenAPI2)
	if !ok {
		return
	}
	doc, err := d.openapi.V2(protobuf)
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	d.document(w, r, doc, protobuf, typeOpenAPI2)
}

// prefersProtobuf reports whether the client prefers protobuf of that media type to JSON. If it accepts neither, it
// sends a 406 error and ok is false.
func prefersProtobuf(w http.ResponseWriter, r *http.Request, protobuf string) (prefers, ok bool) {
	w.Header().Add("Vary", "Accept")
	media := codec.Preferred(r.Header.Get("Accept"), codec.TypeJSON, protobuf)
	if media == "" {
		w.WriteHeader(http.StatusNotAcceptable)
	}
	return media == protobuf, media != ""
}

// document sends doc. JSON and protobuf have the same ETag, as upstream; Vary distinguishes them.
func (d *Documents) document(w http.ResponseWriter, r *http.Request, doc *openapi.Document, protobuf bool,
	media string) {
	if !protobuf {
		media = codec.TypeJSON
	}
	if err := codec.TaggedGzip(w, r, media, doc.Hash, doc.Gzip, doc.Size); err != nil {
		d.Out.Fail(w, r, err)
	}
}
