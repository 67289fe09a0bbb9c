package patch_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/patch"
)

const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"x":"1"},"finalizers":["f/a","f/b"]},` +
	`"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}]},` +
	`{"name":"d","image":"j"}],` +
	`"tolerations":[{"key":"k"}]}}`

// Apply returns the result of each type of patch, and an error with a code for an invalid patch.
func TestApply(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ   types.PatchType
		patch string
		has   string // in the result
		code  int32  // of the error
	}{
		"merge sets":           {types.MergePatchType, `{"metadata":{"labels":{"y":"2"}}}`, `"labels":{"x":"1","y":"2"}`, 0},
		"merge null removes":   {types.MergePatchType, `{"metadata":{"labels":{"x":null}}}`, `"labels":{}`, 0},
		"merge replaces lists": {types.MergePatchType, `{"metadata":{"finalizers":["f/c"]}}`, `"finalizers":["f/c"]`, 0},
		"merge null":           {types.MergePatchType, `null`, "", 400},
		"merge list":           {types.MergePatchType, `[]`, "", 400},
		"strategic merges by key": {types.StrategicMergePatchType,
			`{"spec":{"containers":[{"name":"c","image":"new"}]}}`, `{"env":[{"name":"A","value":"1"}],"image":"new"`, 0},
		"strategic deletes by key": {types.StrategicMergePatchType,
			`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`, `"containers":[{"image":"j","name":"d"}]`, 0},
		"strategic replaces": {types.StrategicMergePatchType,
			`{"spec":{"containers":[{"$patch":"replace"},{"name":"e"}]}}`, `"containers":[{"name":"e"}]`, 0},
		"strategic deletes primitives": {types.StrategicMergePatchType,
			`{"metadata":{"$deleteFromPrimitiveList/finalizers":["f/a"]}}`, `"finalizers":["f/b"]`, 0},
		"strategic without the merge key": {types.StrategicMergePatchType, `{"spec":{"containers":[{"image":"x"}]}}`, "",
			422},
		"strategic unknown directive": {types.StrategicMergePatchType, `{"spec":{"$patch":"x"}}`, "", 422},
		"strategic bad directive":     {types.StrategicMergePatchType, `{"spec":{"$retainKeys":7}}`, "", 400},
		"strategic key is an object":  {types.StrategicMergePatchType, `{"spec":{"containers":[{"name":{}}]}}`, "", 422},
		"strategic null":              {types.StrategicMergePatchType, `null`, "", 400},
		"json adds": {types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers/-","value":"f/c"}]`,
			`"finalizers":["f/a","f/b","f/c"]`, 0},
		"json escapes": {types.JSONPatchType, `[{"op":"add","path":"/metadata/labels/a~1b","value":"1"}]`, `"a/b":"1"`, 0},
		"json test holds": {types.JSONPatchType,
			`[{"op":"test","path":"/metadata/name","value":"a"},{"op":"remove","path":"/spec/tolerations"}]`, `"metadata"`, 0},
		"json test fails":   {types.JSONPatchType, `[{"op":"test","path":"/metadata/name","value":"b"}]`, "", 422},
		"json missing path": {types.JSONPatchType, `[{"op":"remove","path":"/spec/nothing"}]`, "", 422},
		"json index out of range": {types.JSONPatchType, `[{"op":"replace","path":"/spec/containers/7","value":{}}]`, "",
			422},
		"json unknown operation":       {types.JSONPatchType, `[{"op":"x","path":"/a"}]`, "", 422},
		"json replace without a value": {types.JSONPatchType, `[{"op":"replace","path":""}]`, "", 422},
		"json not a list":              {types.JSONPatchType, `{}`, "", 400},
		"json too long":                {types.JSONPatchType, "[" + strings.Repeat(`{"op":"x"},`, 10_000) + `{}]`, "", 413},
		"json doubles": {types.JSONPatchType,
			"[" + strings.Repeat(`{"op":"copy","from":"/spec","path":"/spec/x"},`, 30) + `{}]`, "", 422},
		"apply": {types.ApplyYAMLPatchType, `{}`, "", 415},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := patch.Apply(c.typ, []byte(pod), []byte(c.patch), &corev1.Pod{})
			if c.code != 0 {
				if s, ok := err.(apierrors.APIStatus); !ok || s.Status().Code != c.code {
					t.Errorf("got %v, want %d", err, c.code)
				}
				return
			}
			if err != nil || !strings.Contains(string(out), c.has) {
				t.Errorf("got %s, %v; want %s in it", out, err, c.has)
			}
		})
	}
}

// Arbitrary patches cause no panic: the result is JSON or an error of the client.
func FuzzApply(f *testing.F) {
	for _, p := range []string{
		`{}`, `null`, `[]`, `{"metadata":null}`, `{"metadata":{"labels":{"a":null}}}`, `{"$patch":"delete"}`,
		`{"$patch":"replace"}`,
		`{"spec":{"containers":[{"$patch":"replace"},{"name":"c"}]}}`,
		`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`,
		`{"spec":{"containers":[{"name":null}]}}`, `{"spec":{"containers":[null,5,{"name":{}}]}}`,
		`{"spec":{"containers":{}}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d","image":"x"}]}}`,
		`{"spec":{"$setElementOrder/containers":[1]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["f/a"]}}`,
		`{"metadata":{"$setElementOrder/finalizers":["f/b","f/a"],"finalizers":["f/c"]}}`,
		`{"spec":{"$retainKeys":["containers"]}}`,
		`{"spec":{"containers":[{"name":"c","env":[{"name":"A","$patch":"merge"}],"ports":[{"containerPort":80,` +
			`"$patch":"delete"}]}]}}`,
		`[{"op":"add","path":"/metadata/finalizers/-1","value":1}]`, `[{"op":"move","from":"/spec","path":"/spec/x"}]`,
		`[{"op":"copy","from":"/spec","path":"/spec/containers/0"}]`, `[{"op":"test","path":"/a~2","value":null}]`,
		`[{"op":"remove","path":""}]`, `[{"op":"replace","path":"","value":null}]`, `[null]`, `[{"op":1,"path":2}]`,
		`[{"op":"add","path":"/spec"}]`,
	} {
		for typ := range uint8(3) {
			f.Add(typ, []byte(p))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, data []byte) {
		typ := types.PatchType(patch.Supported[int(n)%len(patch.Supported)])
		out, err := patch.Apply(typ, []byte(pod), data, &corev1.Pod{})
		if err != nil {
			if s, ok := err.(apierrors.APIStatus); !ok || s.Status().Code >= 500 {
				t.Errorf("%s %q: %v", typ, data, err)
			}
			return
		}
		if !json.Valid(out) {
			t.Errorf("%s %q made %q", typ, data, out)
		}
	})
}
