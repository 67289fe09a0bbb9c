// Package discovery serves discovery (groups, versions and resources) and the OpenAPI documents.
package discovery

import (
	"k8s.io/utils/clock"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/codec"
	"monopod/apiserver/discovery/openapi"
	"monopod/apiserver/registry/kind"
)

// Config configures Documents. All fields but Aggregator are required.
type Config struct {
	Resources func() []kind.Resource // the served kinds
	Version   string                 // version of the API in OpenAPI
	Out       *codec.Responder
	Clock     clock.WithDelayedExecution
	// Aggregator knows the groups that other servers serve; nil: there are none.
	Aggregator *aggregate.Aggregator
}

// Documents serves discovery and OpenAPI.
type Documents struct {
	Config
	openapi     *openapi.Documents
	core, named aggregated
}

// New returns the Documents.
func New(cfg Config) *Documents {
	d := &Documents{Config: cfg, core: aggregated{core: true}}
	d.openapi = openapi.New(openapi.Config{
		Resources: d.served,
		Version:   cfg.Version,
		Clock:     cfg.Clock,
		Foreign:   d.foreign,
	})
	return d
}
