// Package openapi describes the served resources as OpenAPI documents: v3, one per group and version, and v2,
// one for all. kubectl uses them to explain fields, to detect features and to merge lists.
//
// A document is composed on request from []Resource and the schemas in package definitions, and is not kept.
// Only the schemas and the documents' hashes are kept, while they are in use.
package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/discovery/openapi/definitions"
	"monopod/apiserver/discovery/openapi/foreign"
	"monopod/apiserver/discovery/openapi/kept"
	"monopod/apiserver/registry/kind"
)

// idle is how long schemas stay in memory after the last use. A client reads all the documents that it needs
// within seconds.
const idle = 2 * time.Minute

// Config of Documents. All fields but Foreign are required.
type Config struct {
	// Resources returns the served resources; the documents follow its changes.
	Resources func() []kind.Resource
	// Version is the server's version.
	Version string
	Clock   clock.WithDelayedExecution
	// Foreign returns the parts of other servers' documents that V2 contains; nil: there are none.
	Foreign func() []*foreign.Part
}

// Documents serves the OpenAPI documents of a set of resources.
type Documents struct {
	cfg  Config
	data *kept.Value[*data]
}

// data is kept while it is in use.
type data struct {
	set *definitions.Set

	mu     sync.Mutex        // guards hashes
	hashes map[string]string // of documents by name
}

// New returns the documents of the served resources.
func New(cfg Config) *Documents {
	return &Documents{cfg: cfg, data: kept.New(cfg.Clock, idle, func() (*data, error) {
		set, err := definitions.Read()
		return &data{set: set, hashes: map[string]string{}}, err
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
	paths := object{}
	for _, name := range d.names() {
		hash, err := d.hash(data, name)
		if err != nil {
			return nil, err
		}
		paths[name] = object{"serverRelativeURL": URL(name, hash)}
	}
	return json.Marshal(object{"paths": paths})
}

// URL returns the path of the v3 document of that name and hash.
func URL(name, hash string) string { return "/openapi/v3/" + name + "?hash=" + hash }

// names returns the names of all v3 documents.
func (d *Documents) names() []string {
	names := []string{"api", "apis", "version"}
	for _, res := range d.cfg.Resources() {
		gv := res.GVR.GroupVersion()
		names = append(names, pathOf(gv))
		if gv.Group != "" {
			names = append(names, "apis/"+gv.Group)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// hash returns the hash of the v3 document of this name.
func (d *Documents) hash(data *data, name string) (string, error) {
	if hash := d.customHash(name); hash != "" {
		return hash, nil
	}
	data.mu.Lock()
	hash, ok := data.hashes[name]
	data.mu.Unlock()
	if ok {
		return hash, nil
	}
	doc, err := d.V3(name)
	if err != nil {
		return "", err
	}
	data.mu.Lock()
	defer data.mu.Unlock()
	data.hashes[name] = doc.Hash
	return doc.Hash, nil
}

// V3 returns /openapi/v3/<name>; nil for an unknown name.
func (d *Documents) V3(name string) (*Document, error) {
	if !slices.Contains(d.names(), name) {
		return nil, nil
	}
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	c := &composer{data.set, &d.cfg}
	if c.set, err = d.extended(data.set, func(gv schema.GroupVersion) bool { return pathOf(gv) == name }); err != nil {
		return nil, err
	}
	gv, paths := c.named(name)
	doc, err := c.compose(paths, &version3{gv: gv})
	if hash := d.customHash(name); err == nil && hash != "" {
		doc.Hash = hash
	}
	return doc, err
}

// extended returns the set with the definitions of the custom kinds of the groups and versions.
func (d *Documents) extended(set *definitions.Set, of func(schema.GroupVersion) bool) (*definitions.Set, error) {
	var more []*definitions.Definition
	for _, res := range d.cfg.Resources() {
		if res.Schema == nil || !of(res.GVR.GroupVersion()) {
			continue
		}
		defs, err := res.Schema.Definitions()
		if err != nil {
			return nil, err
		}
		more = append(more, defs...)
	}
	return set.With(more...), nil
}

// customHash returns the hash of a document with custom kinds, by the revisions of their definitions: composing
// all documents for the index would take too long. Empty: the document has none.
func (d *Documents) customHash(name string) string {
	var revisions []string
	for _, res := range d.cfg.Resources() {
		if res.Schema != nil && pathOf(res.GVR.GroupVersion()) == name {
			revisions = append(revisions, res.Schema.Revision())
		}
	}
	if revisions == nil {
		return ""
	}
	return Hash([]byte(d.cfg.Version + strings.Join(revisions, ",")))
}

// V2 returns /openapi/v2.
func (d *Documents) V2() (*Document, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	c := &composer{data.set, &d.cfg}
	if c.set, err = d.extended(data.set, func(schema.GroupVersion) bool { return true }); err != nil {
		return nil, err
	}
	var paths []path
	for _, name := range d.names() {
		_, more := c.named(name)
		paths = append(paths, more...)
	}
	var parts []*foreign.Part
	if d.cfg.Foreign != nil {
		parts = d.cfg.Foreign()
	}
	return c.compose(paths, &version2{parameters: map[string]object{}}, parts...)
}

// named returns the paths of a v3 document, and its group and version if it has one.
func (c *composer) named(name string) (schema.GroupVersion, []path) {
	switch parts := strings.Split(name, "/"); {
	case name == "version":
		return schema.GroupVersion{}, []path{discovery("/version/", "getCodeVersion", "version", "io.k8s.apimachinery.pkg.version.Info")}
	case name == "api":
		return schema.GroupVersion{}, []path{discovery("/api/", "getCoreAPIVersions", "core", metaV1+"APIVersions")}
	case name == "apis":
		return schema.GroupVersion{}, []path{discovery("/apis/", "getAPIVersions", "apis", metaV1+"APIGroupList")}
	case len(parts) == 2 && parts[0] == "apis":
		return schema.GroupVersion{}, []path{discovery("/"+name+"/", "get"+camel(parts[1])+"APIGroup", lowerCamel(parts[1]), metaV1+"APIGroup")}
	case parts[0] == "apis":
		gv := schema.GroupVersion{Group: parts[1], Version: parts[2]}
		return gv, c.pathsOf(gv)
	default:
		gv := schema.GroupVersion{Version: parts[1]}
		return gv, c.pathsOf(gv)
	}
}
