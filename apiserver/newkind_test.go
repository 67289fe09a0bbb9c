package apiserver_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/controllers"
)

// Kettle is a kind that exists only in this file.
type Kettle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KettleSpec   `json:"spec"`
	Status KettleStatus `json:"status"`
}

// KettleSpec is the spec of a Kettle.
type KettleSpec struct {
	Litres int `json:"litres"`
}

// KettleStatus is the status of a Kettle.
type KettleStatus struct {
	Boils bool `json:"boils"`
}

// DeepCopyObject implements runtime.Object.
func (k *Kettle) DeepCopyObject() runtime.Object {
	out := *k
	k.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// kettles is the whole definition of the kind.
func kettles() registry.Resource {
	fill := func(obj kind.Object) { kind.SetIfZero(&obj.(*Kettle).Spec.Litres, 1) }
	return registry.Resource{
		GVR:        schema.GroupVersionResource{Group: "kitchen.monopod", Version: "v1", Resource: "kettles"},
		Kind:       "Kettle",
		Namespaced: true,
		ShortNames: []string{"kt"},
		New:        func() kind.Object { return new(Kettle) },
		Default:    fill,
		Prepare: kind.SpecAndStatus(func(obj kind.Object) (*KettleSpec, *KettleStatus) {
			return &obj.(*Kettle).Spec, &obj.(*Kettle).Status
		}, fill),
		Validate: func(next, _ kind.Object, _ string) (errs field.ErrorList) {
			if litres := next.(*Kettle).Spec.Litres; litres > 3 {
				errs = append(errs, field.Invalid(field.NewPath("spec", "litres"), litres, "a kettle holds 3 at most"))
			}
			return errs
		},
		Subresources: kind.Parts("status"),
		Columns: []table.Column{table.Name(),
			table.Count("Litres", "How much it holds.", func(k *Kettle) int { return k.Spec.Litres })},
	}
}

// A kind is one value: serving, discovery, defaults, validation, columns, warnings and lists are derived from
// it.
func TestNewKindIsOneValue(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, kettles())
	const at = "/apis/kitchen.monopod/v1/namespaces/default/kettles"
	const asTable = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io"
	for _, c := range []struct {
		name, method, path, body, accept string
		code                             int
		says                             string
	}{
		{"discovery", "GET", "/apis/kitchen.monopod/v1", "", "", 200, `"name":"kettles/status"`},
		{"group", "GET", "/apis", "", "", 200, `"name":"kitchen.monopod"`},
		{"OpenAPI", "GET", "/openapi/v3/apis/kitchen.monopod/v1", "", "", 200, at[:len("/apis/kitchen.monopod/v1")]},
		{"create", "POST", at, `{"metadata":{"name":"a"},"status":{"boils":true}}`, "", 201, `"litres":1`},
		{"a mistake", "POST", at, `{"metadata":{"name":"b"},"spec":{"litres":4}}`, "", 422, "a kettle holds 3 at most"},
		{"an unknown field", "POST", at + "?fieldValidation=Strict", `{"metadata":{"name":"b"},"spec":{"cups":4}}`, "", 400,
			`unknown field \"spec.cups\"`},
		{"another kind", "POST", at, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"b"}}`, "", 400, "Kettle"},
		{"the status", "PATCH", at + "/a/status", `{"status":{"boils":true},"spec":{"litres":3}}`, "", 200, `"boils":true`},
		{"no scale", "GET", at + "/a/scale", "", "", 404, "NotFound"},
		{"read", "GET", at + "/a", "", "", 200, `"spec":{"litres":1},"status":{"boils":true}`},
		{"list", "GET", at, "", "", 200, `"kind":"KettleList"`},
		{"table", "GET", at, "", asTable, 200, `"cells":["a",1]`},
		{"delete", "DELETE", at + "/a", "", "", 200, "Success"},
	} {
		typ := "Content-Type: application/json"
		if c.method == "PATCH" {
			typ = "Content-Type: application/merge-patch+json"
		}
		headers := []string{typ}
		if c.accept != "" {
			headers = append(headers, c.accept)
		}
		resp := a.do(c.method, c.path, c.body, headers...)
		if data := readBody(t, resp); resp.StatusCode != c.code || !strings.Contains(data, c.says) {
			t.Errorf("%s: %d %s", c.name, resp.StatusCode, data)
		}
	}
	served := registry.Served(append(registry.Resources(), kettles()))
	if want := (client.Kind{Resource: kettles().GVR, Kind: "Kettle", Namespaced: true}); !slices.Contains(served, want) {
		t.Error("neither the garbage collector nor the namespace controller handles it")
	}
}

// The client, over HTTP and in process, the garbage collector, quotas and the namespace controller know the kind from
// its Resource.
func TestNewKindIsKnownToClientsAndControllers(t *testing.T) {
	t.Parallel()
	a := serveOf(t, nil, kettles())
	cfg := controllers.Config{Kinds: registry.ServedBy(a.reg)}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.Flags(flags)
	if err := flags.Parse([]string{"--controllers=garbagecollector,namespace,resourcequota"}); err != nil {
		t.Fatal(err)
	}
	manager, err := controllers.New(controllers.Deps{Client: a.reg, Metrics: prometheus.NewRegistry()}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for range 6000 {
			if ok() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatal(what)
	}

	remote := &client.Remote{URL: a.url, HTTP: &http.Client{Transport: bearer{a.hc.Transport}}, New: newObject(a.reg)}
	create := func(c client.Client, obj client.Object) client.Object {
		t.Helper()
		stored, err := c.Create(ctx, obj)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	kettle := func(namespace, name string, owners ...metav1.OwnerReference) *Kettle {
		return &Kettle{TypeMeta: metav1.TypeMeta{APIVersion: "kitchen.monopod/v1", Kind: "Kettle"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}}
	}
	gone := func(namespace, name string) func() bool {
		return func() bool {
			_, err := a.reg.Get(ctx, client.RefOf(kettle(namespace, name)))
			return apierrors.IsNotFound(err)
		}
	}

	create(a.reg, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/kettles.kitchen.monopod": resource.MustParse("2")}}})
	owner := create(remote, kettle("default", "owner"))
	create(remote,
		kettle("default", "owned",
			metav1.OwnerReference{APIVersion: "kitchen.monopod/v1", Kind: "Kettle", Name: "owner", UID: owner.GetUID()}))
	eventually("the quota does not count it", func() bool {
		q, err := client.Get[*corev1.ResourceQuota](ctx, a.reg, "default", "q")
		used := q.Status.Used["count/kettles.kitchen.monopod"]
		return err == nil && used.Value() == 2
	})
	if _, err := remote.Create(ctx, kettle("default", "third")); !apierrors.IsForbidden(err) {
		t.Errorf("beyond the quota: %v", err)
	}
	if read, err := remote.Get(ctx, client.RefOf(kettle("default", "owner"))); err != nil ||
		read.(*Kettle).Spec.Litres != 1 {
		t.Errorf("over HTTP: %v, %v", read, err)
	}
	if _, err := remote.Delete(ctx, client.RefOf(kettle("default", "owner")), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("the garbage collector does not follow it", gone("default", "owned"))

	create(a.reg, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kitchen"}})
	create(a.reg, kettle("kitchen", "last"))
	if _, err := a.reg.Delete(ctx, client.Ref{Resource: client.Namespaces, Name: "kitchen"},
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually("a namespace that ends keeps it", gone("kitchen", "last"))
}
