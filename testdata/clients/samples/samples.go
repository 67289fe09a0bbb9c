// Package samples contains an object of every kind that monopod serves, for clients that handle all of them.
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

// Sample is one kind that can be listed and watched, with an object to write.
type Sample struct {
	GVR        schema.GroupVersionResource
	Namespaced bool
	object     *unstructured.Unstructured
}

// Object returns a new object of the kind, in the namespace default. Its name begins with prefix and differs
// between kinds that share objects.
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

// Name is the name of Object.
func (s Sample) Name(prefix string) string {
	if s.definition() {
		return prefix + ".sampled.example.com"
	}
	if s.apiService() {
		return "v1." + prefix + ".aggregated.example.com"
	}
	if s.GVR.Resource == "ipaddresses" { // whose names are the addresses
		var sum byte
		for _, b := range []byte(prefix) {
			sum = sum*31 + b
		}
		return fmt.Sprintf("198.51.100.%d", sum)
	}
	group, _, _ := strings.Cut(s.GVR.Group, ".")
	return strings.TrimSuffix(prefix+"-"+s.GVR.Version+"-"+group, "-")
}

// definition reports whether the kind is that of custom kinds' definitions, whose names are those of the kinds.
func (s Sample) definition() bool { return s.GVR.Resource == "customresourcedefinitions" }

// apiService reports whether the kind is that of API services, whose names are those of the versions that they serve.
func (s Sample) apiService() bool { return s.GVR.Resource == "apiservices" }

// InClientGo reports whether client-go has types and informers for the kinds of a group; definitions of custom resources
// and API services have clients of their own.
func InClientGo(group string) bool {
	return group != "apiextensions.k8s.io" && group != "apiregistration.k8s.io"
}

// Served returns the samples of the served kinds. A kind without a sample is an error, and so is a sample of a
// kind that is not served.
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
				return nil, fmt.Errorf("%s of %s is served, but samples.yaml has none", r.Kind, gv)
			}
			delete(known, gv.WithKind(r.Kind))
			all = append(all, Sample{gv.WithResource(r.Name), r.Namespaced, object})
		}
	}
	for gvk := range known {
		err = errors.Join(err, fmt.Errorf("%s is not served", gvk))
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
