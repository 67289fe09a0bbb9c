// Package openapi describes the served resources as OpenAPI documents: v3, one
// per group and version, and v2, one for all. By them kubectl explains fields,
// finds out what the server can do and how lists merge.
//
// A document is composed when it is asked for, of the paths that []Resource
// stands for and of the schemas in package definitions, and not kept. What is
// kept, while anybody asks, are the schemas and the documents' hashes.
package openapi

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/openapi/definitions"
	"monopod/apiserver/openapi/kept"
	"monopod/apiserver/registry/kind"
)

// idle is how long schemas stay in memory after the last use. A client reads all
// the documents it wants within seconds.
const idle = 2 * time.Minute

// Config of Documents. All of it is required.
type Config struct {
	// Resources are what is served now; the documents follow when it changes.
	Resources func() []kind.Resource
	// Version is the server's.
	Version string
	Clock   clock.WithDelayedExecution
}

// Documents answers for the OpenAPI documents of a set of resources.
type Documents struct {
	cfg  Config
	data *kept.Value[*data]
}

// data is what stays while somebody asks.
type data struct {
	set *definitions.Set

	mu     sync.Mutex        // guards hashes
	hashes map[string]string // of documents by name
}

// New describes what is served.
func New(cfg Config) *Documents {
	return &Documents{cfg: cfg, data: kept.New(cfg.Clock, idle, func() (*data, error) {
		set, err := definitions.Read()
		return &data{set: set, hashes: map[string]string{}}, err
	})}
}

type object = map[string]any

// Held says whether anything is in memory.
func (d *Documents) Held() bool { return d.data.Held() }

// Changed says that Resources answers differently from now on.
func (d *Documents) Changed() { d.data.Release() }

// Index answers /openapi/v3: where each group and version is described. The hash
// in a URL changes with the document, so that clients may keep it.
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

// URL is where the v3 document of that name and hash is found.
func URL(name, hash string) string { return "/openapi/v3/" + name + "?hash=" + hash }

// names are those of all v3 documents.
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

// hash is that of the v3 document of this name.
func (d *Documents) hash(data *data, name string) (string, error) {
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

// V3 answers /openapi/v3/<name>; nil for a name that is not served.
func (d *Documents) V3(name string) (*Document, error) {
	if !slices.Contains(d.names(), name) {
		return nil, nil
	}
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	c := &composer{data.set, &d.cfg}
	gv, paths := c.named(name)
	return c.compose(paths, &version3{gv: gv})
}

// V2 answers /openapi/v2.
func (d *Documents) V2() (*Document, error) {
	data, err := d.data.Get()
	if err != nil {
		return nil, err
	}
	c := &composer{data.set, &d.cfg}
	var paths []path
	for _, name := range d.names() {
		_, more := c.named(name)
		paths = append(paths, more...)
	}
	return c.compose(paths, &version2{parameters: map[string]object{}})
}

// named are the paths of a v3 document, and its group and version if it is of
// one.
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
