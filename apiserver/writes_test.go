package apiserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// The server accepts and refuses the same writes as Kubernetes' API server, with the same errors.
func TestWritesAsUpstream(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const (
		in     = "/api/v1/namespaces/default"
		maps   = in + "/configmaps"
		pods   = in + "/pods"
		crds   = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		merge  = "Content-Type: application/merge-patch+json"
		yaml   = "Content-Type: application/yaml"
		apply  = "Content-Type: application/apply-patch+yaml"
		inKube = `{metadata: {name: gadgets.x.k8s.io, annotations: {A}}, spec: {group: x.k8s.io, scope: Namespaced, ` +
			`names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}, versions: [{name: v1, ` +
			`served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`
	)
	gadgets := func(annotation string) string { return strings.Replace(inKube, "A", annotation, 1) }
	for _, c := range []struct {
		name, method, path, body string
		code                     int
		says, not                string
		header                   string
	}{
		{"a dry run of a creation with a resourceVersion", "POST", maps + "?dryRun=All",
			`{metadata: {name: a, resourceVersion: "5"}}`, 201, `"name":"a"`, "", yaml},
		{"a creation with a resourceVersion", "POST", maps, `{metadata: {name: a, resourceVersion: "5"}}`, 400,
			"resourceVersion should not be set on objects to be created", "", yaml},
		{"a dry run with an existing name", "POST", "/api/v1/namespaces?dryRun=All",
			`{metadata: {name: default, resourceVersion: "5"}}`, 409,
			"already exists", "", yaml},

		{"a protected group", "POST", crds, gadgets(""), 422,
			"metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation",
			"", yaml},
		{"a wrong approval", "POST", crds, gadgets("api-approved.kubernetes.io: me"), 422,
			`metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"me\"`, "", yaml},
		{"another name", "POST", crds,
			strings.Replace(gadgets("api-approved.kubernetes.io: unapproved"), "name: gadgets", "name: Gadgets", 1), 422,
			`must be spec.names.plural+\".\"+spec.group`, "", yaml},
		{"approved", "POST", crds,
			gadgets("api-approved.kubernetes.io: 'https://github.com/kubernetes/enhancements/pull/1111'"), 201,
			`"name":"gadgets.x.k8s.io"`, "", yaml},
		{"the approval removed", "PATCH", crds + "/gadgets.x.k8s.io", `{"metadata":{"annotations":null}}`, 422,
			"Required value: protected groups", "", merge},

		{"a Service whose name begins with a digit", "POST", in + "/services",
			`{metadata: {name: 1a}, spec: {ports: [{port: 80}]}}`, 201, `"name":"1a"`, "", yaml},
		{"as the backend of an Ingress", "POST", "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
			`{metadata: {name: i}, spec: {defaultBackend: {service: {name: 1a, port: {number: 80}}}}}`, 201, `"name":"1a"`, "",
			yaml},
		{"a Service whose name is not a label", "POST", in + "/services",
			`{metadata: {name: 1.a}, spec: {ports: [{port: 80}]}}`,
			422, "must not contain dots", "", yaml},

		{"another server for a built-in group", "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			`{metadata: {name: v1.apps}, spec: {group: apps, version: v1, service: {name: a, namespace: b}, ` +
				`groupPriorityMinimum: 1, versionPriority: 1}}`, 422,
			"spec.service: Forbidden: apps/v1 is built in: no other server can serve it", "", yaml},
		{"a server for a group that users may install", "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			`{metadata: {name: v1beta1.metrics.k8s.io}, spec: {group: metrics.k8s.io, version: v1beta1, service: {name: a, ` +
				`namespace: b}, groupPriorityMinimum: 1, versionPriority: 1}}`, 201, `"service":{`, "", yaml},

		{"a mode of an emptyDir", "POST", pods,
			`{metadata: {name: mode}, spec: {volumes: [{name: v, emptyDir: {mode: 448}}], containers: [{name: c, image: i}]}}`,
			201, `"emptyDir":{}`, "448", yaml},
		{"two sources of a volume", "POST", pods,
			`{metadata: {name: two}, spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /a}}], containers: [{name: c, ` +
				`image: i}]}}`, 422, "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
			"emptyDir: Forbidden", yaml},
		{"a pod with scheduling gates", "POST", pods,
			`{metadata: {name: gated}, spec: {schedulingGates: [{name: a}], containers: [{name: c, image: i}]}}`, 201,
			`"lastTransitionTime":"2`, `"lastTransitionTime":null`, yaml},

		{"a wrong type", "POST", in + "/services", `{metadata: {name: a}, spec: {ports: {port: 80}}}`, 400,
			`Service in version \"v1\" cannot be handled as a Service: json: cannot unmarshal object into Go struct field ` +
				`ServiceSpec.spec.ports of type []v1.ServicePort`, "", yaml},
		{"a wrong type in an update", "PUT", pods + "/mode",
			`{kind: Pod, apiVersion: v1, metadata: {name: mode}, spec: {containers: 3}}`, 400,
			`Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal number`, "", yaml},
		{"unknown fields", "POST", "/apis/apps/v1/namespaces/default/deployments?fieldValidation=Strict",
			`{metadata: {name: a}, specs: {}}`, 400,
			`Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"specs\"`, "",
			yaml},
		{"applied: a list", "PATCH", in + "/services/a?fieldManager=f",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: {port: 80}}}`, 400,
			`.spec.ports: expected list, got map"`, "&", apply},
		{"applied: a map", "PATCH", in + "/services/a?fieldManager=f",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: "a\nb"}}`, 400,
			`.spec.selector: expected map, got string"`, "&", apply},
		{"applied: a number", "PATCH", in + "/services/a?fieldManager=f",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {a: 3}}}`, 400,
			`.spec.selector.a: expected string, got number"`, "&", apply},
		{"applied: a boolean", "PATCH", in + "/services/a?fieldManager=f",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {selector: {a: true}}}`, 400,
			`.spec.selector.a: expected string, got boolean"`, "&", apply},
		{"applied: a string", "PATCH", in + "/services/a?fieldManager=f",
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: [a]}}`, 400,
			`.spec.type: expected string, got list"`, "&", apply},

		{"an object with a finalizer", "POST", maps, `{metadata: {name: held, finalizers: [example.com/a]}}`, 201,
			"example.com/a", "", yaml},
		{"deletion of this object", "DELETE", maps + "/held", "", 200, "deletionTimestamp", "", "Accept: application/json"},
		{"another finalizer for it", "PATCH", maps + "/held",
			`{"metadata":{"finalizers":["example.com/a","example.com/b"]}}`, 422,
			"no new finalizers can be added", "]: ", merge},
	} {
		resp := a.do(c.method, c.path, c.body, c.header)
		data := readBody(t, resp)
		if resp.StatusCode != c.code || !strings.Contains(data, c.says) || c.not != "" && strings.Contains(data, c.not) {
			t.Errorf("%s: %d %.2000s", c.name, resp.StatusCode, data)
		}
		if strings.Count(data, "no new finalizers") > 2 { // in the message, and as its one cause
			t.Errorf("%s: more than one error: %s", c.name, data)
		}
	}
}

// The server accepts each media type that OpenAPI lists for a patch: kubectl chooses one of them.
func TestAdvertisedPatchesAreAccepted(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.define(widgets)
	var v2 struct {
		Paths map[string]struct{ Patch *struct{ Consumes []string } }
	}
	if err := json.Unmarshal([]byte(readBody(t, a.do("GET", "/openapi/v2", ""))), &v2); err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for path, at := range v2.Paths {
		if at.Patch == nil {
			continue
		}
		kinds++
		for _, typ := range at.Patch.Consumes {
			path := strings.NewReplacer("{namespace}", "default", "{name}", "absent").Replace(path)
			if resp := a.do("PATCH", path+"?fieldManager=f", "{}", "Content-Type: "+
				typ); resp.StatusCode == http.StatusUnsupportedMediaType {
				t.Errorf("PATCH %s with %s: %s", path, typ, readBody(t, resp))
			} else {
				resp.Body.Close()
			}
		}
	}
	if kinds < 100 {
		t.Errorf("OpenAPI v2 has patches of %d paths only", kinds)
	}
	var v3 struct {
		Paths map[string]struct {
			Patch *struct {
				RequestBody struct{ Content map[string]any }
			}
		}
	}
	if err := json.Unmarshal([]byte(readBody(t, a.do("GET", "/openapi/v3/apis/example.com/v1", ""))), &v3); err != nil {
		t.Fatal(err)
	}
	if p := v3.Paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"].Patch; p == nil ||
		p.RequestBody.Content["application/merge-patch+json"] == nil ||
		p.RequestBody.Content["application/strategic-merge-patch+json"] != nil {
		t.Errorf("OpenAPI v3: media types of a patch of a custom object: %+v", p)
	}
}
