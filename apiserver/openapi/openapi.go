// Package openapi describes the served resources as OpenAPI v3 documents, one
// per group and version: the paths, their verbs and their query parameters, by
// which kubectl finds out what the server can do.
package openapi

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/registry"
)

// Documents are the documents of a set of resources. They are made when asked
// for and not kept.
type Documents struct {
	resources []registry.Resource
}

// New describes resources.
func New(resources []registry.Resource) *Documents { return &Documents{resources} }

type object = map[string]any

// Index answers /openapi/v3: where each group and version is described. Its
// hash changes with its content, so that clients may keep it.
func (d *Documents) Index() ([]byte, error) {
	paths := object{}
	for _, r := range d.resources {
		name := pathOf(r.GVR.GroupVersion())
		if _, ok := paths[name]; ok {
			continue
		}
		doc, err := d.Document(name)
		if err != nil {
			return nil, err
		}
		paths[name] = object{"serverRelativeURL": fmt.Sprintf("/openapi/v3/%s?hash=%X", name, sha512.Sum512_256(doc))}
	}
	return json.Marshal(object{"paths": paths})
}

// pathOf is where a group and version is served, without the leading slash.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// Document answers /openapi/v3/<name>; nil for a name that is not served.
func (d *Documents) Document(name string) ([]byte, error) {
	paths := object{}
	for _, r := range d.resources {
		if pathOf(r.GVR.GroupVersion()) == name {
			addPaths(paths, "/"+name, r)
		}
	}
	if len(paths) == 0 {
		return nil, nil
	}
	return json.Marshal(object{
		"openapi": "3.0.0",
		"info":    object{"title": "Kubernetes", "version": "v1.37.2"},
		"paths":   paths,
		// No schemas yet: kubectl explain says so instead of failing on its template.
		"components": object{"schemas": object{}},
	})
}

func addPaths(paths object, prefix string, r registry.Resource) {
	collection := prefix
	if r.Namespaced {
		collection += "/namespaces/{namespace}"
	}
	collection += "/" + r.GVR.Resource
	write := []string{"dryRun", "fieldManager", "fieldValidation", "pretty"}
	paths[collection] = object{
		"get":    operation(r, "list", "labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "watch", "allowWatchBookmarks", "sendInitialEvents", "timeoutSeconds"),
		"post":   operation(r, "post", write...),
		"delete": operation(r, "deletecollection", "labelSelector", "fieldSelector", "dryRun", "gracePeriodSeconds", "propagationPolicy"),
	}
	one := object{
		"get":    operation(r, "get", "pretty"),
		"put":    operation(r, "put", write...),
		"patch":  operation(r, "patch", write...),
		"delete": operation(r, "delete", "dryRun", "gracePeriodSeconds", "propagationPolicy"),
	}
	paths[collection+"/{name}"] = one
	for _, sub := range r.Subresources {
		if sub == "status" || sub == "scale" {
			paths[collection+"/{name}/"+sub] = one
		}
	}
}

// operation describes one verb on one path.
func operation(r registry.Resource, action string, query ...string) object {
	params := make([]object, len(query))
	for i, name := range query {
		params[i] = object{"name": name, "in": "query", "schema": object{"type": "string", "uniqueItems": true}}
	}
	gvk := r.GVK()
	return object{
		"operationId":         action + gvk.Kind + strings.ToUpper(gvk.Version),
		"parameters":          params,
		"responses":           object{"200": object{"description": "OK"}},
		"x-kubernetes-action": action,
		"x-kubernetes-group-version-kind": object{
			"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
	}
}
