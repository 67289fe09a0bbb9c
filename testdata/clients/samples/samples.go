// Package samples contains an object of every kind that monopod serves, for the test clients.
package samples

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

//go:embed samples.yaml
var objects []byte

// Sample is a kind that can be listed and watched, with an object of the kind.
type Sample struct {
	GVR        schema.GroupVersionResource
	Namespaced bool
	object     *unstructured.Unstructured
}

// Object returns a new object of the kind, in the namespace default if the kind is namespaced. The name depends on
// prefix and differs between versions of a kind.
func (s Sample) Object(prefix string) *unstructured.Unstructured {
	o := s.object.DeepCopy()
	o.SetName(s.Name(prefix))
	if s.definition() {
		plural, _, _ := strings.Cut(o.GetName(), ".")
		if err := unstructured.SetNestedField(o.Object, plural, "spec", "names", "plural"); err != nil {
			panic(err) // the sample has names
		}
	}
	if s.apiService() {
		_, group, _ := strings.Cut(o.GetName(), ".")
		if err := unstructured.SetNestedField(o.Object, group, "spec", "group"); err != nil {
			panic(err) // the sample has a spec
		}
	}
	if s.Namespaced {
		o.SetNamespace("default")
	}
	return o
}

// Name returns the name of Object.
func (s Sample) Name(prefix string) string {
	if s.definition() {
		return prefix + ".sampled.example.com"
	}
	if s.apiService() {
		return "v1." + prefix + ".aggregated.example.com"
	}
	if s.GVR.Resource == "ipaddresses" { // the name is the address
		var sum byte
		for _, b := range []byte(prefix) {
			sum = sum*31 + b
		}
		return fmt.Sprintf("198.51.100.%d", sum)
	}
	group, _, _ := strings.Cut(s.GVR.Group, ".")
	return strings.TrimSuffix(prefix+"-"+s.GVR.Version+"-"+group, "-")
}

// definition reports whether the kind is CustomResourceDefinition, whose names must be PLURAL.GROUP.
func (s Sample) definition() bool { return s.GVR.Resource == "customresourcedefinitions" }

// apiService reports whether the kind is APIService, whose names must be VERSION.GROUP.
func (s Sample) apiService() bool { return s.GVR.Resource == "apiservices" }

// InClientGo reports whether client-go has types and informers for the kinds of a group. CustomResourceDefinition and
// APIService have their own clients.
func InClientGo(group string) bool {
	return group != "apiextensions.k8s.io" && group != "apiregistration.k8s.io"
}

// Served returns the samples of the served kinds. It fails if a served kind has no sample, or if the kind of a sample
// is not served.
func Served(cfg *rest.Config) ([]Sample, error) {
	known, err := parse()
	if err != nil {
		return nil, err
	}
	c, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	_, lists, err := c.ServerGroupsAndResources()
	if err != nil {
		return nil, err
	}
	var all []Sample
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Verbs.String(), "watch") {
				continue
			}
			object, ok := known[gv.WithKind(r.Kind)]
			if !ok {
				return nil, fmt.Errorf("samples.yaml has no object of the served kind %s of %s", r.Kind, gv)
			}
			delete(known, gv.WithKind(r.Kind))
			all = append(all, Sample{gv.WithResource(r.Name), r.Namespaced, object})
		}
	}
	for gvk := range known {
		err = errors.Join(err, fmt.Errorf("samples.yaml: kind %s is not served", gvk))
	}
	return all, err
}

func parse() (map[schema.GroupVersionKind]*unstructured.Unstructured, error) {
	known := map[schema.GroupVersionKind]*unstructured.Unstructured{}
	docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(objects), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := docs.Decode(&o.Object); errors.Is(err, io.EOF) {
			return known, nil
		} else if err != nil {
			return nil, fmt.Errorf("samples.yaml: %w", err)
		}
		known[o.GroupVersionKind()] = o
	}
}
