// Package aggregate passes requests on to the API servers that APIServices name.
//
//   - Aggregator: which group and version another server serves.
//   - backend: one of these servers.
//   - Controller: keeps the Aggregator, the condition Available, and the APIServices of this server's own groups up to
//     date.
//   - foreign.go: the part of another API server's OpenAPI v2 document that is merged into this server's
package aggregate

import (
	"cmp"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
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
	// Identity is the client certificate by which other servers recognize this one; nil: none.
	Identity func() (*tls.Certificate, error)
	Dial     webhook.Dial // nil: the system's
	// Announce is called when Kinds returns something else; nil: nobody asks for Kinds.
	Announce func()
	Log      *zap.Logger
}

// Aggregator knows which groups and versions other servers serve.
type Aggregator struct {
	cfg Config
	mu  sync.Mutex // guards changes of now
	now atomic.Pointer[map[schema.GroupVersion]*backend]

	kept atomic.Pointer[kept] // nil: Local was not called
}

// New returns an Aggregator without other servers.
func New(cfg Config) *Aggregator {
	a := &Aggregator{cfg: cfg}
	a.now.Store(&map[schema.GroupVersion]*backend{})
	return a
}

// Handler returns what passes requests of the group and version on; nil: this server serves them.
func (a *Aggregator) Handler(gv schema.GroupVersion,
	fail func(http.ResponseWriter, *http.Request, error)) http.Handler {
	if a == nil {
		return nil
	}
	b := (*a.now.Load())[gv]
	if b == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.pass(w, r, fail) })
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

// Remotes returns them, by priority.
func (a *Aggregator) Remotes() []Remote {
	if a == nil {
		return nil
	}
	var out []Remote
	for gv, b := range *a.now.Load() {
		about := b.about.Load()
		out = append(out,
			Remote{GroupVersion: gv, GroupPriority: b.service.Spec.GroupPriorityMinimum,
				VersionPriority: b.service.Spec.VersionPriority,
				Available:       about.available, Resources: about.resources, OpenAPI: about.openAPI, OpenAPI2: about.openAPI2.part})
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
	if last := a.kept.Load(); last != nil && last.remotes == now && len(last.of) == len(resources) && &last.of[0] == &resources[0] {
		return last.resources
	}
	next := &kept{remotes: now, of: resources,
		resources: slices.DeleteFunc(slices.Clone(resources), func(r kind.Resource) bool { return (*now)[r.GVR.GroupVersion()] != nil })}
	a.kept.Store(next)
	return next.resources
}

// kept is what Local returned, and for what.
type kept struct {
	remotes       *map[schema.GroupVersion]*backend
	of, resources []kind.Resource
}

// set makes an APIService take effect; nil: it no longer exists.
func (a *Aggregator) set(gv schema.GroupVersion, s *apiservice.Service) *backend {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := *a.now.Load()
	was := old[gv]
	if s == nil || s.Spec.Service == nil || a.ours(gv) {
		if was != nil {
			a.replace(gv, nil)
			was.know(about{}) // nothing more, if somebody still has it
			was.transport.CloseIdleConnections()
		}
		return nil
	}
	if was != nil && was.same(s) {
		was.learn(s)
		return was
	}
	b := newBackend(&a.cfg, s)
	b.learn(s)
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

// ours reports whether this server never gives a group and version away: its built-in kinds, except those of
// metrics.k8s.io.
func (a *Aggregator) ours(gv schema.GroupVersion) bool {
	if gv == metrics.GroupVersion() {
		return false
	}
	kinds, _ := a.cfg.Served()
	return slices.ContainsFunc(kinds, func(r kind.Resource) bool { return r.Schema == nil && r.GVR.GroupVersion() == gv })
}
