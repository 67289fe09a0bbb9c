// Package openapi describes the served resources as OpenAPI documents: v3 has one per group and version, v2 one for
// all. kubectl uses them to explain fields, to detect features and to merge lists.
//
// A document is composed from []Resource and the schemas in package definitions when it is first requested. The schemas
// and the compressed documents stay in memory while they are in use, and clients share them.
package openapi

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/aggregate"
	"monopod/apiserver/kit/idlecache"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// cacheTime is how long schemas and documents stay in memory after the last use. A client reads all the documents that
// it needs within seconds.
const cacheTime = 2 * time.Minute

// Config configures Documents. All fields but Foreign are required.
type Config struct {
	// Resources returns the served resources, as a new slice after every change.
	Resources func() []kind.Resource
	// Version is the server's version.
	Version string
	Clock   clock.WithDelayedExecution
	// Foreign returns the parts of other servers' documents that V2 contains; nil: there are none.
	Foreign func() []*aggregate.Part
}

// Documents serves the OpenAPI documents of a set of resources.
type Documents struct {
	cfg  Config
	data *idlecache.Value[*data]
}

// data contains the schemas and documents that stay in memory while they are in use.
type data struct {
	set *definitions.Set

	composing sync.Mutex // serializes compositions, each of which takes many times the memory of its result

	mu        sync.Mutex            // guards the fields below
	hashes    map[string]string     // of v3 documents by name
	documents map[request]*Document // of the current resources
}

// request identifies a document.
type request struct {
	name     string // of the v3 document; empty: v2
	protobuf bool
}

// New returns the documents of the served resources.
func New(cfg Config) *Documents {
	return &Documents{cfg: cfg, data: idlecache.New(cfg.Clock, cacheTime, func() (*data, error) {
		set, err := definitions.Read()
		return &data{set: set, hashes: map[string]string{}, documents: map[request]*Document{}}, err
	})}
}

type object = map[string]any

// Index is the content of /openapi/v3: the URL of the document of each group and version. The hash in a URL
// changes with the document, so that clients can cache it.
func (d *Documents) Index() ([]byte, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	paths, all := object{}, servedBy(d.cfg.Resources())
	for _, name := range all.names() {
		hash, err := d.hash(data, all, name)
		if err != nil {
			return nil, err
		}
		paths[name] = object{"serverRelativeURL": URL(name, hash)}
	}
	return json.Marshal(object{"paths": paths})
}

// URL returns the path of the v3 document of that name and hash.
func URL(name, hash string) string { return "/openapi/v3/" + name + "?hash=" + hash }

// served contains the served resources by group and version. It is made once for a whole document or index, because
// there may be thousands of resources.
type served map[schema.GroupVersion][]kind.Resource

func servedBy(resources []kind.Resource) served {
	out := served{}
	for _, res := range resources {
		gv := res.GVR.GroupVersion()
		out[gv] = append(out[gv], res)
	}
	return out
}

// names returns the names of all v3 documents.
func (s served) names() []string {
	names := []string{"api", "apis", "version"}
	for gv := range s {
		names = append(names, pathOf(gv))
		if gv.Group != "" {
			names = append(names, "apis/"+gv.Group)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hash returns the hash of the v3 document of this name.
func (d *Documents) hash(data *data, all served, name string) (string, error) {
	if hash := d.customHash(all, name); hash != "" {
		return hash, nil
	}
	data.composing.Lock()
	defer data.composing.Unlock()
	data.mu.Lock()
	hash, ok := data.hashes[name]
	data.mu.Unlock()
	if ok {
		return hash, nil
	}
	doc, err := d.version3(data, all, name)
	if err != nil {
		return "", err
	}
	data.mu.Lock()
	defer data.mu.Unlock()
	data.hashes[name] = doc.Hash
	return doc.Hash, nil
}

// V3 returns /openapi/v3/<name> as JSON or protobuf, or nil for an unknown name.
func (d *Documents) V3(name string, protobuf bool) (*Document, error) {
	return d.document(request{name, protobuf}, nil)
}

// V2 returns /openapi/v2 as JSON or protobuf.
func (d *Documents) V2(protobuf bool) (*Document, error) {
	var parts []*aggregate.Part
	if d.cfg.Foreign != nil {
		parts = d.cfg.Foreign()
	}
	return d.document(request{protobuf: protobuf}, parts)
}

// document returns the cached document of the current resources and these parts, or composes it. Concurrent requests
// wait for one composition. It returns nil for an unknown name.
func (d *Documents) document(what request, parts []*aggregate.Part) (*Document, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	resources := d.cfg.Resources()
	if doc := data.cached(what, resources, parts); doc != nil {
		return doc, nil
	}
	data.composing.Lock()
	defer data.composing.Unlock()
	if doc := data.cached(what, resources, parts); doc != nil { // composed by another request meanwhile
		return doc, nil
	}
	made, err := d.compose(data, what.name, resources, parts)
	if err != nil || made == nil {
		return nil, err
	}
	doc, err := made.packed(what.protobuf)
	if err != nil {
		return nil, err
	}
	doc.resources, doc.parts = resources, parts
	data.mu.Lock()
	defer data.mu.Unlock()
	maps.DeleteFunc(data.documents, func(_ request, old *Document) bool { return !same(old.resources, resources) })
	data.documents[what] = doc
	return doc, nil
}

// cached returns the document that was composed from these resources and parts, or nil if there is none.
func (d *data) cached(what request, resources []kind.Resource, parts []*aggregate.Part) *Document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.documents[what]; doc != nil && same(doc.resources, resources) && slices.Equal(doc.parts, parts) {
		return doc
	}
	return nil
}

// same reports whether both are the same slice.
func same(a, b []kind.Resource) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// compose composes a document. It returns nil for an unknown name.
func (d *Documents) compose(data *data, name string, resources []kind.Resource,
	parts []*aggregate.Part) (*composed, error) {
	all := servedBy(resources)
	if name == "" {
		return d.version2(data, all, parts)
	}
	if !slices.Contains(all.names(), name) {
		return nil, nil
	}
	return d.version3(data, all, name)
}

func (d *Documents) version3(data *data, all served, name string) (*composed, error) {
	gv, _ := versionOf(name)
	set, err := extended(data.set, all[gv])
	if err != nil {
		return nil, err
	}
	c := newComposer(set, &d.cfg, all)
	doc, err := c.compose(c.pathsIn(name), &version3{gv: gv})
	if hash := d.customHash(all, name); err == nil && hash != "" {
		doc.Hash = hash
	}
	return doc, err
}

func (d *Documents) version2(data *data, all served, parts []*aggregate.Part) (*composed, error) {
	set, err := extended(data.set, slices.Collect(maps.Values(all))...)
	if err != nil {
		return nil, err
	}
	c := newComposer(set, &d.cfg, all)
	var paths []path
	for _, name := range all.names() {
		paths = append(paths, c.pathsIn(name)...)
	}
	return c.compose(paths, &version2{parameters: map[string]object{}}, parts...)
}

// extended returns the set with the definitions of those of the resources that are custom kinds.
func extended(set *definitions.Set, resources ...[]kind.Resource) (*definitions.Set, error) {
	var more []*definitions.Definition
	for _, list := range resources {
		for _, res := range list {
			if res.Schema == nil {
				continue
			}
			defs, err := res.Schema.Definitions()
			if err != nil {
				return nil, err
			}
			more = append(more, defs...)
		}
	}
	return set.With(more...), nil
}

// customHash returns the hash of a document with custom kinds. It is a hash of the revisions of their definitions,
// because composing all documents for the index takes too long. It returns an empty string for a document without
// custom kinds.
func (d *Documents) customHash(all served, name string) string {
	gv, ok := versionOf(name)
	if !ok {
		return ""
	}
	var revisions []string
	for _, res := range all[gv] {
		if res.Schema != nil {
			revisions = append(revisions, res.Schema.Revision())
		}
	}
	if revisions == nil {
		return ""
	}
	return Hash([]byte(d.cfg.Version + strings.Join(revisions, ",")))
}

// versionOf returns the group and version that a v3 document describes. It returns false if it describes none.
func versionOf(name string) (schema.GroupVersion, bool) {
	switch parts := strings.Split(name, "/"); {
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	}
	return schema.GroupVersion{}, false
}

// pathsIn returns the paths of a v3 document.
func (c *composer) pathsIn(name string) []path {
	if gv, ok := versionOf(name); ok {
		paths := []path{discovery("/"+pathOf(gv)+"/", "get"+camel(gv.Group)+title(gv.Version)+"APIResources", tagOf(gv),
			metaV1+"APIResourceList")}
		for _, res := range c.all[gv] {
			paths = append(paths, c.resource(res)...)
		}
		return paths
	}
	switch name {
	case "version":
		return []path{discovery("/version/", "getCodeVersion", "version", "io.k8s.apimachinery.pkg.version.Info")}
	case "api":
		return []path{discovery("/api/", "getCoreAPIVersions", "core", metaV1+"APIVersions")}
	case "apis":
		return []path{discovery("/apis/", "getAPIVersions", "apis", metaV1+"APIGroupList")}
	}
	group := strings.TrimPrefix(name, "apis/")
	return []path{discovery("/"+name+"/", "get"+camel(group)+"APIGroup", lowerCamel(group), metaV1+"APIGroup")}
}
