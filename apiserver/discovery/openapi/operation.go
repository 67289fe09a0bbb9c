package openapi

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/patch"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
)

// metaV1 is the prefix of the names of definitions that all kinds share.
const metaV1 = "io.k8s.apimachinery.pkg.apis.meta.v1."

// path is a URL with its operations.
type path struct {
	url        string
	parameters []parameter // of every operation
	operations []operation
}

// operation is a method on a path, in a form common to OpenAPI v2 and v3.
type operation struct {
	method string // get, post, put, patch or delete
	action string // x-kubernetes-action
	id     string
	about  string
	tag    string
	kind   schema.GroupVersionKind // x-kubernetes-group-version-kind; empty: none

	query []parameter

	body         string // the definition of the request's body; empty: none
	bodyRequired bool
	consumes     []string

	produces []string
	answers  []answer
}

// answer is a response of an operation; without a definition it is text.
type answer struct {
	code       int
	definition string
}

// parameter is a parameter in the path or the query.
type parameter struct {
	name, in, typ, about string
}

// anyType is upstream's media type of writes.
const anyType = "*/*"

func plainTypes() []string {
	return []string{"application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor"}
}

// patchTypes returns the media types of a resource's patches. kubectl sends strategic merge patches if a kind
// advertises them. Custom kinds do not, because a strategic merge needs the tags of a Go type.
func patchTypes(res *kind.Resource) []string {
	if res.Schema != nil {
		return patch.Untyped()
	}
	return patch.Served()
}

// methodOf returns the HTTP method of a verb, and upstream's prefix of its operation IDs.
func methodOf(verb string) (method, word string) {
	switch verb {
	case "get":
		return "get", "read"
	case "list":
		return "get", "list"
	case "create":
		return "post", "create"
	case "update":
		return "put", "replace"
	case "patch":
		return "patch", "patch"
	case "delete", "deletecollection":
		return "delete", "delete"
	}
	return "", ""
}

// answersOf returns the codes that upstream documents for a verb, with the definition of their bodies.
func answersOf(verb, definition string) []answer {
	codes := []int{200}
	switch verb {
	case "create":
		codes = []int{200, 201, 202}
	case "update", "patch":
		codes = []int{200, 201}
	case "delete":
		codes = []int{200, 202}
	}
	var out []answer
	for _, code := range codes {
		out = append(out, answer{code, definition})
	}
	return out
}

// optionsOf returns the definition of a verb's query parameters.
func optionsOf(verb string) string {
	switch verb {
	case "list":
		return metaV1 + "ListOptions"
	case "create":
		return metaV1 + "CreateOptions"
	case "update":
		return metaV1 + "UpdateOptions"
	case "patch":
		return metaV1 + "PatchOptions"
	case "delete":
		return metaV1 + "DeleteOptions"
	}
	return ""
}

// queryOf returns the query parameters of a definition of options. The caller must not modify them.
func (c *composer) queryOf(name string) []parameter {
	query, ok := c.queries[name]
	if !ok {
		query = queryOf(c.set, name)
		c.queries[name] = query
	}
	return query
}

func queryOf(set *definitions.Set, name string) []parameter {
	d := set.Get(name)
	if d == nil {
		return nil
	}
	var options struct {
		Properties map[string]struct{ Description, Type string }
	}
	if err := json.Unmarshal(d.V2, &options); err != nil {
		return nil // definitions are valid JSON: a test reads them all
	}
	var out []parameter
	for name, p := range options.Properties {
		switch {
		case name == "kind" || name == "apiVersion" || p.Type == "":
		case p.Type == "array":
			out = append(out, parameter{name, "query", "string", p.Description})
		default:
			out = append(out, parameter{name, "query", p.Type, p.Description})
		}
	}
	return sorted(out)
}

// sorted sorts parameters by name, without duplicates.
func sorted(list []parameter) []parameter {
	slices.SortStableFunc(list, func(a, b parameter) int { return cmp.Compare(a.name, b.name) })
	return slices.CompactFunc(list, func(a, b parameter) bool { return a.name == b.name })
}
