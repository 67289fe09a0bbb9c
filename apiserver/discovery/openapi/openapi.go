// Package openapi describes the served resources as OpenAPI documents: v3, one per group and version, and v2,
// one for all. kubectl uses them to explain fields, to detect features and to merge lists.
//
// A document is composed on request from []Resource and the schemas in package definitions, and is not kept.
// Only the schemas and the documents' hashes are kept, while they are in use.
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
	paths, all := object{}, servedBy(&d.cfg)
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

// served are the served resources by group and version, looked up once for a whole document or index: there may be thousands.
type served map[schema.GroupVersion][]kind.Resource

func servedBy(cfg *Config) served {
	out := served{}
	for _, res := range cfg.Resources() {
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
	all := servedBy(&d.cfg)
	if !slices.Contains(all.names(), name) {
		return nil, nil
	}
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	gv, _ := versionOf(name)
	set, err := extended(data.set, all[gv])
	if err != nil {
		return nil, err
	}
	c := newComposer(set, &d.cfg, all)
	doc, err := c.compose(c.named(name), &version3{gv: gv})
	if hash := d.customHash(all, name); err == nil && hash != "" {
		doc.Hash = hash
	}
	return doc, err
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

// customHash returns the hash of a document with custom kinds, by the revisions of their definitions: composing
// all documents for the index would take too long. Empty: the document has none.
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

// V2 returns /openapi/v2.
func (d *Documents) V2() (*Document, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	all := servedBy(&d.cfg)
	set, err := extended(data.set, slices.Collect(maps.Values(all))...)
	if err != nil {
		return nil, err
	}
	c := newComposer(set, &d.cfg, all)
	var paths []path
	for _, name := range all.names() {
		paths = append(paths, c.named(name)...)
	}
	var parts []*foreign.Part
	if d.cfg.Foreign != nil {
		parts = d.cfg.Foreign()
	}
	return c.compose(paths, &version2{parameters: map[string]object{}}, parts...)
}

// versionOf returns the group and version that the v3 document of this name describes; false: it describes none.
func versionOf(name string) (schema.GroupVersion, bool) {
	switch parts := strings.Split(name, "/"); {
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	}
	return schema.GroupVersion{}, false
}

// named returns the paths of a v3 document.
func (c *composer) named(name string) []path {
	if gv, ok := versionOf(name); ok {
		return c.pathsOf(gv)
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
