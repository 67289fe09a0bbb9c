package apiserver

import (
	"bytes"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/openapi"
	"monopod/apiserver/registry"
)

// Media types of OpenAPI documents. Those with the dots and the dashes are what
// older clients ask for.
const (
	typeOpenAPI2     = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
	typeOpenAPI2Old  = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
	typeOpenAPI3     = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
	typeOpenAPI3Old  = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
	hashedFor        = 365 * 24 * time.Hour // upstream: a year, the most there is
	openapiCacheable = "public, immutable"
)

// newOpenAPI describes what the server serves now.
func newOpenAPI(cfg Config) *openapi.Documents {
	return openapi.New(openapi.Config{
		Resources: cfg.Registry.Resources,
		SubVerbs:  func(_ registry.Resource, sub string) []string { return verbsOf(sub) },
		SubKind:   func(res registry.Resource, sub string) schema.GroupVersionKind { return subKind(res, sub) },
		Version:   Version.GitVersion,
		Clock:     cfg.Clock,
	})
}

// openapiIndex answers /openapi/v3.
func (s *Server) openapiIndex(w http.ResponseWriter, r *http.Request) {
	index, err := s.openapi.Index()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Etag", strconv.Quote(openapi.Hash(index)))
	w.Header().Set("Content-Type", typeJSON)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(index))
}

// openapiGroup answers /openapi/v3/<name>. A request that names the document's
// hash may keep the answer for good; one that names another is sent to the right
// one.
func (s *Server) openapiGroup(w http.ResponseWriter, r *http.Request) {
	name := chi.URLParam(r, "*")
	doc, err := s.openapi.V3(name)
	switch hash := r.URL.Query().Get("hash"); {
	case err != nil:
		s.fail(w, r, err)
		return
	case doc == nil:
		s.notFound(w, r)
		return
	case hash != "" && hash != doc.Hash:
		http.Redirect(w, r, openapi.URL(name, doc.Hash), http.StatusMovedPermanently)
		return
	case hash != "":
		w.Header().Set("Cache-Control", openapiCacheable)
		w.Header().Set("Expires", s.now().Add(hashedFor).UTC().Format(http.TimeFormat))
	}
	s.document(w, r, doc, typeOpenAPI3, typeOpenAPI3Old)
}

// openapiV2 answers /openapi/v2.
func (s *Server) openapiV2(w http.ResponseWriter, r *http.Request) {
	doc, err := s.openapi.V2()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.document(w, r, doc, typeOpenAPI2, typeOpenAPI2Old)
}

// document sends doc as the client wants it: JSON, or protobuf under one of its
// names. Both go by one ETag, as upstream, since Vary tells them apart.
func (s *Server) document(w http.ResponseWriter, r *http.Request, doc *openapi.Document, protobuf ...string) {
	w.Header().Add("Vary", "Accept")
	typ := preferred(r.Header.Get("Accept"), append([]string{typeJSON}, protobuf...))
	if typ == "" {
		http.Error(w, "", http.StatusNotAcceptable)
		return
	}
	etag, data := strconv.Quote(doc.Hash), doc.JSON
	w.Header().Set("Etag", etag)
	w.Header().Set("Content-Type", typeJSON)
	if typ != typeJSON {
		w.Header().Set("Content-Type", protobuf[0])
		if !strings.Contains(r.Header.Get("If-None-Match"), etag) {
			var err error
			if data, err = doc.Protobuf(); err != nil {
				s.fail(w, r, err)
				return
			}
		}
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// preferred is the first media type of an Accept header that is offered; the
// first offer when the client takes anything; empty when it wants none of them.
func preferred(accept string, offers []string) string {
	if accept == "" {
		return offers[0]
	}
	for part := range strings.SplitSeq(accept, ",") {
		typ, _, err := mime.ParseMediaType(part)
		if err != nil { // the type of older clients has an @, which is none of a media type's
			typ, _, _ = strings.Cut(strings.TrimSpace(part), ";")
		}
		for _, offer := range offers {
			if typ == offer || typ == "*/*" || typ == "application/*" {
				return offer
			}
		}
	}
	return ""
}
