package discovery

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/codec"
	"monopod/apiserver/registry/kind"
)

// cacheTime is how long a document of aggregated discovery stays in memory after its last use.
const cacheTime = 2 * time.Minute

// aggregated caches a document of aggregated discovery, which is made again when the served resources change.
type aggregated struct {
	core bool // of the core group; false: of all other groups

	mu   sync.Mutex // guards the fields below; held while the document is made, so that it is made once
	now  *document  // nil: not made
	used time.Time
}

// document is immutable.
type document struct {
	resources []kind.Resource // with which it was made
	remotes   []aggregate.Remote
	list      *apidiscovery.APIGroupDiscoveryList
	json      []byte
	tag       string // independent of the encoding
}

// of reports whether the document was made with these resources. The registry makes a new slice at every change.
func (doc *document) of(resources []kind.Resource, remotes []aggregate.Remote) bool {
	return len(doc.resources) == len(resources) && (len(resources) == 0 || &doc.resources[0] == &resources[0]) &&
		reflect.DeepEqual(doc.remotes, remotes)
}

// aggregated returns the current document.
func (d *Documents) aggregated(a *aggregated) (*document, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = d.Clock.Now()
	if a.now != nil && a.now.of(d.Resources(), d.Aggregator.Remotes()) {
		return a.now, nil
	}
	doc, err := d.makeDocument(a.core)
	if err == nil {
		if a.now == nil {
			d.Clock.AfterFunc(cacheTime, func() { d.release(a) })
		}
		a.now = doc
	}
	return doc, err
}

// release releases a document that is no longer used.
func (d *Documents) release(a *aggregated) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if left := cacheTime - d.Clock.Since(a.used); left > 0 {
		d.Clock.AfterFunc(left, func() { d.release(a) })
		return
	}
	a.now = nil
}

func (d *Documents) makeDocument(core bool) (*document, error) {
	doc := &document{resources: d.Resources(), remotes: d.Aggregator.Remotes(), list: &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: codec.Aggregated, APIVersion: apidiscovery.SchemeGroupVersion.String()},
		Items:    []apidiscovery.APIGroupDiscovery{},
	}}
	remote, served := d.remotes(), d.byVersion()
	for _, versions := range d.groups() {
		if (versions[0].Group == "") == core {
			doc.list.Items = append(doc.list.Items, groupDiscovery(versions, remote, served))
		}
	}
	var err error
	doc.json, err = json.Marshal(doc.list)
	doc.tag = fmt.Sprintf("\"%X\"", sha512.Sum512(doc.json))
	return doc, err
}

// byVersion returns the resources that this server serves itself, by name.
func (d *Documents) byVersion() map[schema.GroupVersion][]kind.Resource {
	out := map[schema.GroupVersion][]kind.Resource{}
	for _, res := range d.served() {
		gv := res.GVR.GroupVersion()
		out[gv] = append(out[gv], res)
	}
	for _, resources := range out {
		slices.SortFunc(resources, func(a, b kind.Resource) int { return strings.Compare(a.GVR.Resource, b.GVR.Resource) })
	}
	return out
}

// discover sends aggregated discovery if the client accepts it (the code 304 if it has the current version), and
// otherwise legacy.
func (d *Documents) discover(w http.ResponseWriter, r *http.Request, a *aggregated, legacy any) {
	f, err := codec.Negotiate(r, codec.Aggregated)
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	w.Header().Set("Vary", "Accept")
	if f.As != codec.Aggregated {
		d.Out.Send(w, r, f, http.StatusOK, legacy)
		return
	}
	doc, err := d.aggregated(a)
	if err != nil {
		d.Out.Fail(w, r, err)
		return
	}
	f.ContentType = f.Header() + ";g=" + apidiscovery.GroupName + ";v=v2;as=" + codec.Aggregated
	w.Header().Set("ETag", doc.tag)
	w.Header().Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == doc.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if f.Media == codec.TypeProtobuf || f.Media == codec.TypeCBOR || strings.Contains(r.URL.RawQuery, "pretty=") {
		d.Out.Send(w, r, f, http.StatusOK, doc.list)
		return
	}
	d.Out.Send(w, r, f, http.StatusOK, doc.json)
}

func groupDiscovery(versions []schema.GroupVersion, remote map[schema.GroupVersion]aggregate.Remote,
	served map[schema.GroupVersion][]kind.Resource) apidiscovery.APIGroupDiscovery {
	g := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: versions[0].Group}}
	for _, gv := range versions {
		if r, ok := remote[gv]; ok {
			g.Versions = append(g.Versions, remoteDiscovery(r))
			continue
		}
		v := apidiscovery.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		for _, res := range served[gv] {
			v.Resources = append(v.Resources, resourceDiscovery(res))
		}
		g.Versions = append(g.Versions, v)
	}
	return g
}

func resourceDiscovery(res kind.Resource) apidiscovery.APIResourceDiscovery {
	scope := apidiscovery.ScopeCluster
	if res.Namespaced {
		scope = apidiscovery.ScopeNamespace
	}
	out := apidiscovery.APIResourceDiscovery{
		Resource: res.GVR.Resource, ResponseKind: kindOf(res.GVK()), Scope: scope,
		SingularResource: res.SingularName(), Verbs: res.VerbList(), ShortNames: res.ShortNames, Categories: res.Categories,
	}
	for _, sub := range res.Subresources {
		out.Subresources = append(out.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: sub.Name, ResponseKind: kindOf(sub.KindOf(&res)), Verbs: sub.VerbList()})
	}
	slices.SortFunc(out.Subresources, func(a, b apidiscovery.APISubresourceDiscovery) int {
		return strings.Compare(a.Subresource, b.Subresource)
	})
	return out
}

func kindOf(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
