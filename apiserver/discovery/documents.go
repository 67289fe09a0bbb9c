// Package discovery tells clients what is served: the lists of groups, versions and
// resources, and the OpenAPI documents.
package discovery

import (
	"k8s.io/utils/clock"

	"monopod/apiserver/codec"
	"monopod/apiserver/openapi"
	"monopod/apiserver/registry/kind"
)

// Config of documents. All is required.
type Config struct {
	Resources func() []kind.Resource // what is served now
	Version   string                 // of the API, as OpenAPI names it
	Out       *codec.Responder
	Clock     clock.WithDelayedExecution
}

// Documents tell clients what is served: discovery and OpenAPI.
type Documents struct {
	Config
	openapi *openapi.Documents
}

// New returns the documents about what is served.
func New(cfg Config) *Documents {
	return &Documents{cfg, openapi.New(openapi.Config{
		Resources: cfg.Resources,
		Version:   cfg.Version,
		Clock:     cfg.Clock,
	})}
}
