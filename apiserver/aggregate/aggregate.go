// Package aggregate proxies requests to the API servers that APIServices name.
//
//   - Aggregator knows which groups and versions other servers serve.
//   - backend is one of these servers.
//   - Controller keeps the Aggregator, the condition Available, and the APIServices of this server's own groups up to
//     date.
//   - Part (foreign.go) is the part of another server's OpenAPI v2 document that is merged into this server's.
package aggregate

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"monopod/apiserver/kit/endpoint"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/apiservice"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/webhook"
)

// Config of an Aggregator. API, Served and Log are required.
type Config struct {
	API endpoint.Reader
	// Served returns the kinds that this server serves, and a channel that is closed when they change.
	Served func() (kinds []kind.Resource, changed <-chan struct{})
	// Identity returns the client certificate that identifies this server to other servers; nil: none.
	Identity func() (*tls.Certificate, error)
	Dial     webhook.Dial // nil: the system's
	// Announce is called when the result of Kinds changes; nil: Kinds is not used.
	Announce func()
	Log      *zap.Logger
}

// Aggregator knows which groups and versions other servers serve.
type Aggregator struct {
	cfg Config
	mu  sync.Mutex // guards changes of now
	now atomic.Pointer[map[schema.GroupVersion]*backend]

	local atomic.Pointer[localKinds] // the last result of Local; nil: none
}

// New returns an Aggregator without other servers.
func New(cfg Config) *Aggregator {
	a := &Aggregator{cfg: cfg}
	a.now.Store(&map[schema.GroupVersion]*backend{})
	return a
}

// Handler returns the handler that proxies requests of the group and version, or nil if this server serves them.
func (a *Aggregator) Handler(gv schema.GroupVersion,
	fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if a == nil {
		return nil
	}
	b := (*a.now.Load())[gv]
	if b == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.proxy(w, r, fail) })
}

// Remote is a group and version that another server serves.
type Remote struct {
	schema.GroupVersion
	GroupPriority, VersionPriority int32
	Available                      bool
	Resources                      []metav1.APIResource
	OpenAPI                        string // the hash of its document of OpenAPI v3; empty: it has none
	OpenAPI2                       *Part  // of its document of OpenAPI v2; nil: it has none
}

// Remotes returns the groups and versions of other servers, by priority.
func (a *Aggregator) Remotes() []Remote {
	if a == nil {
		return nil
	}
	var out []Remote
	for gv, b := range *a.now.Load() {
		info := b.info.Load()
		out = append(out,
			Remote{GroupVersion: gv, GroupPriority: b.service.Spec.GroupPriorityMinimum,
				VersionPriority: b.service.Spec.VersionPriority,
				Available:       info.available, Resources: info.resources, OpenAPI: info.openAPI,
				OpenAPI2: info.openAPI2.part})
	}
	slices.SortFunc(out, func(x, y Remote) int {
		return cmp.Or(cmp.Compare(y.GroupPriority, x.GroupPriority), cmp.Compare(x.Group, y.Group),
			cmp.Compare(y.VersionPriority, x.VersionPriority), version.CompareKubeAwareVersionStrings(y.Version, x.Version))
	})
	return out
}

// Local returns the resources without those that another server serves. It returns the same slice until one of the two
// changes.
func (a *Aggregator) Local(resources []kind.Resource) []kind.Resource {
	if a == nil || len(*a.now.Load()) == 0 || len(resources) == 0 {
		return resources
	}
	now := a.now.Load()
	if last := a.local.Load(); last != nil && last.remotes == now && len(last.of) == len(resources) &&
		&last.of[0] == &resources[0] {
		return last.resources
	}
	remote := func(r kind.Resource) bool { return (*now)[r.GVR.GroupVersion()] != nil }
	next := &localKinds{remotes: now, of: resources, resources: slices.DeleteFunc(slices.Clone(resources), remote)}
	a.local.Store(next)
	return next.resources
}

// localKinds is a result of Local, with its arguments.
type localKinds struct {
	remotes       *map[schema.GroupVersion]*backend
	of, resources []kind.Resource
}

// set applies an APIService; s is nil if it no longer exists. It returns nil if this server serves the group and
// version.
func (a *Aggregator) set(gv schema.GroupVersion, s *apiservice.Service) *backend {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := *a.now.Load()
	was := old[gv]
	if s == nil || s.Spec.Service == nil || a.servedHere(gv) {
		if was != nil {
			a.replace(gv, nil)
			was.setInfo(info{}) // for requests that still use it
			was.transport.CloseIdleConnections()
		}
		return nil
	}
	if was != nil && was.service.UID == s.UID && equality.Semantic.DeepEqual(&was.service.Spec, &s.Spec) {
		was.setAvailable(s)
		return was
	}
	b := newBackend(&a.cfg, s)
	b.setAvailable(s)
	if was != nil {
		was.transport.CloseIdleConnections()
	}
	a.replace(gv, b)
	return b
}

// replace sets the server of a group and version. The caller holds mu.
func (a *Aggregator) replace(gv schema.GroupVersion, b *backend) {
	next := map[schema.GroupVersion]*backend{}
	for other, server := range *a.now.Load() {
		next[other] = server
	}
	next[gv] = b
	if b == nil {
		delete(next, gv)
	}
	a.now.Store(&next)
}

// servedHere reports whether only this server may serve a group and version: those of its built-in kinds, except
// metrics.k8s.io.
func (a *Aggregator) servedHere(gv schema.GroupVersion) bool {
	if gv == metrics.GroupVersion() {
		return false
	}
	kinds, _ := a.cfg.Served()
	return slices.ContainsFunc(kinds, func(r kind.Resource) bool { return r.Schema == nil && r.GVR.GroupVersion() == gv })
}
