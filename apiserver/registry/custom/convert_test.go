package custom

import (
	"encoding/json"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"monopod/apiserver/registry/webhook"
)

// FuzzConverted checks that any response of a conversion webhook is rejected, or is the same object and can be stored.
func FuzzConverted(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a","namespace":"b","uid":"c",` +
			`"labels":{"x":"y"}},"spec":{"a":1},"more":[1]}`,
		`{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a","namespace":"b","uid":"c",` +
			`"annotations":{"x":1}}}`,
		`{"apiVersion":"example.com/v2","kind":"Thing","metadata":null,"items":[]}`,
		`{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a","namespace":"b","uid":"c",` +
			`"creationTimestamp":7},"spec":{"t":{"metadata":[]}}}`,
		`null`, `[]`, `{`, `{"apiVersion":1}`,
	} {
		f.Add([]byte(seed))
	}
	schema := apiextensionsv1.JSONSchemaProps{Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object",
			Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"a": {Type: "integer"}, "t": {Type: "object", XEmbeddedResource: true, XPreserveUnknownFields: new(true)}}}}}
	def := &Definition{}
	def.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com",
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
			{Name: "v2", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}}}
	v := NewKinds(clock.RealClock{}, webhook.Network{}).newVersion(def, &def.Spec.Versions[0])
	in := &Object{TypeMeta: metav1.TypeMeta{Kind: "Thing", APIVersion: "example.com/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "c", ResourceVersion: "9", Generation: 3}}
	f.Fuzz(func(t *testing.T, data []byte) {
		answer := &apiextensionsv1.ConversionReview{}
		text := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"u",` +
			`"result":{"status":"Success"},"convertedObjects":[` + string(data) + `]}}`
		if json.Unmarshal([]byte(text), answer) != nil {
			return
		}
		asked := &apiextensionsv1.ConversionReview{TypeMeta: metav1.TypeMeta{Kind: "ConversionReview",
			APIVersion: "apiextensions.k8s.io/v1"}, Request: &apiextensionsv1.ConversionRequest{UID: "u"}}
		objects, err := responseObjects(asked, answer)
		if err != nil {
			return
		}
		for i := range objects {
			out, err := v.accept(in, &objects[i])
			if err != nil {
				continue
			}
			if out.APIVersion != "example.com/v2" || out.Name != in.Name || out.UID != in.UID ||
				out.ResourceVersion != in.ResourceVersion || out.Generation != in.Generation {
				t.Errorf("%s became %+v", data, out.ObjectMeta)
			}
			stored, err := json.Marshal(out)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(stored, &Object{}); err != nil {
				t.Errorf("%s is stored as %s: %v", data, stored, err)
			}
		}
	})
}
