package discovery

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/discovery/openapi"
)

// remotes returns the groups and versions that other servers serve.
func (d *Documents) remotes() map[schema.GroupVersion]aggregate.Remote {
	out := map[schema.GroupVersion]aggregate.Remote{}
	for _, r := range d.Aggregator.Remotes() {
		out[r.GroupVersion] = r
	}
	return out
}

// remoteDiscovery returns the resources of another server as of its last check.
func remoteDiscovery(r aggregate.Remote) apidiscovery.APIVersionDiscovery {
	out := apidiscovery.APIVersionDiscovery{Version: r.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	if !r.Available {
		out.Freshness = apidiscovery.DiscoveryFreshnessStale
	}
	places := map[string]int{}
	subresources := func(sub bool) func(metav1.APIResource) bool {
		return func(res metav1.APIResource) bool { return strings.Contains(res.Name, "/") != sub }
	}
	for _, res := range slices.DeleteFunc(slices.Clone(r.Resources), subresources(false)) {
		scope := apidiscovery.ScopeCluster
		if res.Namespaced {
			scope = apidiscovery.ScopeNamespace
		}
		places[res.Name] = len(out.Resources)
		out.Resources = append(out.Resources, apidiscovery.APIResourceDiscovery{
			Resource: res.Name, ResponseKind: remoteKind(r.GroupVersion, res), Scope: scope, SingularResource: res.SingularName,
			Verbs: res.Verbs, ShortNames: res.ShortNames, Categories: res.Categories})
	}
	for _, sub := range slices.DeleteFunc(slices.Clone(r.Resources), subresources(true)) {
		name, part, _ := strings.Cut(sub.Name, "/")
		if at, ok := places[name]; ok {
			of := &out.Resources[at]
			of.Subresources = append(of.Subresources,
				apidiscovery.APISubresourceDiscovery{Subresource: part, ResponseKind: remoteKind(r.GroupVersion, sub),
					Verbs: sub.Verbs})
		}
	}
	return out
}

func remoteKind(in schema.GroupVersion, res metav1.APIResource) *metav1.GroupVersionKind {
	out := &metav1.GroupVersionKind{Group: in.Group, Version: in.Version, Kind: res.Kind}
	if res.Version != "" {
		out.Group, out.Version = res.Group, res.Version
	}
	return out
}

// foreign returns the parts of other servers' OpenAPI v2 documents as of their last checks.
func (d *Documents) foreign() (parts []*aggregate.Part) {
	for _, r := range d.Aggregator.Remotes() {
		if r.OpenAPI2 != nil {
			parts = append(parts, r.OpenAPI2)
		}
	}
	return parts
}

// remote returns the handler that proxies /openapi/v3/<name> to another server, or nil if this server serves it.
func (d *Documents) remote(name string) http.Handler {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != "apis" { //nolint:mnd // apis/GROUP/VERSION
		return nil
	}
	return d.Aggregator.Handler(schema.GroupVersion{Group: parts[1], Version: parts[2]}, d.Out.Fail)
}

// withRemotes adds the documents of other servers to the index of OpenAPI v3.
func (d *Documents) withRemotes(index []byte) ([]byte, error) {
	remotes := d.Aggregator.Remotes()
	if len(remotes) == 0 {
		return index, nil
	}
	var all struct {
		Paths map[string]map[string]string `json:"paths"`
	}
	if err := json.Unmarshal(index, &all); err != nil {
		return nil, err
	}
	for _, r := range remotes {
		name := "apis/" + r.Group + "/" + r.Version
		if r.OpenAPI != "" {
			all.Paths[name] = map[string]string{"serverRelativeURL": openapi.URL(name, r.OpenAPI)}
		}
	}
	return json.Marshal(all)
}
