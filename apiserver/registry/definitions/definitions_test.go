package definitions_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/apiserver/registry/definitions"
)

func read(t *testing.T) *definitions.Set {
	t.Helper()
	set, err := definitions.Read()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// definitions.zst was generated from the versions of the modules in go.mod. If this fails: go -C testdata/openapi get
// those versions, then make openapi.
func TestGeneratedFromModulesInUse(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	modules := read(t).Modules
	for _, name := range []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/kube-openapi"} {
		if modules[name] == "" || !strings.Contains(string(mod), "\t"+name+" "+modules[name]+"\n") {
			t.Errorf("%s: definitions.zst was generated from %q, which is not the version in go.mod", name, modules[name])
		}
	}
}

// Every definition is a schema, lists its references, and refers only to existing definitions.
func TestComplete(t *testing.T) {
	t.Parallel()
	set := read(t)
	mention := regexp.MustCompile(`"\$ref":"#/(?:definitions|components/schemas)/([^"]+)"`)
	for _, name := range set.Names() {
		d := set.Get(name)
		for _, text := range []json.RawMessage{d.V2, d.V3} {
			if err := json.Unmarshal(text, &spec.Schema{}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, ref := range mention.FindAllStringSubmatch(string(text), -1) {
				if set.Get(ref[1]) == nil || !slices.Contains(d.Refs, ref[1]) {
					t.Errorf("%s refers to %s, which is not defined or not in Refs", name, ref[1])
				}
			}
		}
	}
}

// The schemas contain the parts that clients use: merge keys, required fields, defaults and formats. The descriptions
// are those that upstream publishes.
func TestFields(t *testing.T) {
	t.Parallel()
	set := read(t)
	for name, want := range map[string]string{
		"io.k8s.api.core.v1.PodSpec": `"x-kubernetes-list-map-keys":["name"],` +
			`"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"`,
		"io.k8s.api.core.v1.Container": `"x-kubernetes-list-map-keys":["containerPort",` +
			`"protocol"],"x-kubernetes-list-type":"map"`,
		"io.k8s.api.core.v1.ContainerPort":                   `"required":["containerPort"]`,
		"io.k8s.api.core.v1.LabelSelector":                   "",
		"io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector": `"x-kubernetes-map-type":"atomic"`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.Time":          `"format":"date-time"`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime":     `"format":"date-time"`,
		"io.k8s.apimachinery.pkg.util.intstr.IntOrString":    `"format":"int-or-string"`,
		"io.k8s.api.core.v1.Secret":                          `"format":"byte"`,
		"io.k8s.apimachinery.pkg.api.resource.Quantity":      `"oneOf":[{"type":"string"},{"type":"number"}]`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": `"x-kubernetes-list-type":"set",` +
			`"x-kubernetes-patch-strategy":"merge"`,
		"io.k8s.api.core.v1.ServicePort": `"type":"string","default":"TCP","enum":["SCTP","TCP","UDP"]`,
		"io.k8s.api.apps.v1.Deployment": `"x-kubernetes-group-version-kind":[{"group":"apps",` +
			`"kind":"Deployment","version":"v1"}]`,
		"io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry": `"fieldsV1"`,
	} {
		d := set.Get(name)
		switch {
		case want == "" && d != nil:
			t.Errorf("%s is defined", name)
		case want != "" && d == nil:
			t.Errorf("%s is not defined", name)
		case want != "" && !strings.Contains(string(d.V3), want):
			t.Errorf("%s has no %s: %s", name, want, d.V3)
		}
	}
}
