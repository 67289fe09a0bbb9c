package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/custom"
	"monopod/store"
)

// cluster is an API in memory with the definitions of the Gateway API, without their schemas, and a node.
type cluster struct {
	*registry.Registry
	t *testing.T
}

func newCluster(t *testing.T, nodeAddresses ...string) *cluster {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	c := &cluster{Registry: registry.New(s, resources, registry.Config{}), t: t}
	if err := c.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.run(registry.NewDefinitions(c.Registry).Run)
	for _, kind := range allKinds {
		c.define(kind)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	c.create(node)
	update(c, node, "status", func(n *corev1.Node) {
		for _, a := range nodeAddresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
	})
	c.start("n")
	return c
}

// start runs a controller on a node until the test ends.
func (c *cluster) start(node string) {
	c.t.Helper()
	metrics, err := follow.NewMetrics(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	c.run(New(follow.Deps{Client: c, Clock: clock.RealClock{}, Log: zap.NewNop(), Metrics: metrics},
		Config{Node: node, Kinds: registry.ServedBy(c.Registry)}).Run)
}

// run runs a task until the test ends.
func (c *cluster) run(task func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- task(ctx) }()
	c.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
}

// define installs the definition of a kind, and waits until it is served.
func (c *cluster) define(kind string) {
	c.t.Helper()
	plural := strings.ToLower(kind) + "s"
	if kind == kindClass {
		plural = "gatewayclasses"
	}
	scope := apiextensionsv1.NamespaceScoped
	if kind == kindClass {
		scope = apiextensionsv1.ClusterScoped
	}
	names := apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, Singular: strings.ToLower(kind),
		ListKind: kind + "List"}
	def := crd.Of(&apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + gatewayv1.GroupName,
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "https://example.com/1"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: gatewayv1.GroupName, Scope: scope, Names: names,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: new(true)}}}}}})
	c.create(def)
	update(c, def, "status", func(d *crd.Definition) {
		d.Status.AcceptedNames = names
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
			{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
			{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	})
	c.until(kind+" is served", func() bool {
		return slices.ContainsFunc(registry.ServedBy(c.Registry).Now(), func(k client.Kind) bool { return k.Kind == kind })
	})
}

func (c *cluster) create(objs ...client.Object) {
	c.t.Helper()
	for _, obj := range objs {
		if _, err := c.Create(c.t.Context(), obj); err != nil {
			c.t.Fatal(err)
		}
	}
}

// apply creates the objects of the Gateway API in YAML documents.
func (c *cluster) apply(documents string) {
	c.t.Helper()
	for text := range strings.SplitSeq(documents, "\n---\n") {
		obj := custom.New()
		if err := yaml.Unmarshal([]byte("apiVersion: gateway.networking.k8s.io/v1\n"+text), obj); err != nil {
			c.t.Fatal(err)
		}
		if obj.GetObjectKind().GroupVersionKind().Kind != kindClass {
			obj.SetNamespace(cmp.Or(obj.GetNamespace(), "default"))
		}
		c.create(obj)
	}
}

func update[T client.Object](c *cluster, obj T, subresource string, change func(T)) {
	c.t.Helper()
	_, err := client.Update(c.t.Context(), c, obj, subresource, func(cur T) error { change(cur); return nil })
	if err != nil {
		c.t.Fatal(err)
	}
}

var gateways = schema.GroupVersionResource{Group: gatewayv1.GroupName, Version: "v1", Resource: "gateways"}

func (c *cluster) gateway(name string) *gatewayv1.Gateway {
	c.t.Helper()
	obj, err := c.Get(c.t.Context(), client.Ref{Resource: gateways, Namespace: "default", Name: name})
	if err != nil {
		c.t.Fatal(err)
	}
	gw, err := decode[gatewayv1.Gateway](obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return gw
}

// edit replaces a part of a Gateway's JSON.
func (c *cluster) edit(name, from, to string) {
	c.t.Helper()
	_, err := c.Update(c.t.Context(), client.Ref{Resource: gateways, Namespace: "default", Name: name},
		func(cur client.Object) (client.Object, error) {
			text, err := json.Marshal(cur)
			if err != nil {
				return nil, err
			}
			next := cur.DeepCopyObject().(client.Object)
			return next, json.Unmarshal(bytes.Replace(text, []byte(from), []byte(to), 1), next)
		})
	if err != nil {
		c.t.Fatal(err)
	}
}

// service returns a Service; nil: it does not exist.
func (c *cluster) service(name string) *corev1.Service {
	c.t.Helper()
	svc, err := client.Get[*corev1.Service](c.t.Context(), c, "default", name)
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return svc
}

// programmed returns the reason of the Gateway's condition Programmed.
func (c *cluster) programmed(name string) string {
	c.t.Helper()
	return value(meta.FindStatusCondition(c.gateway(name).Status.Conditions, "Programmed")).Reason
}

func (c *cluster) until(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(time.Hour); !ok(); time.Sleep(time.Second) {
		if time.Now().After(end) {
			c.t.Fatalf("not reached: %s", what)
		}
	}
}

const frontGateway = ourClass + `kind: Gateway
metadata: {name: front}
spec: {gatewayClassName: monopod, listeners: [{name: http, port: 80, protocol: HTTP}]}`

// TestServiceReturns deletes the Service of a Gateway.
func TestServiceReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.apply(frontGateway)
		var first *corev1.Service
		c.until("the Gateway has a Service", func() bool { first = c.service("front-monopod"); return first != nil })
		synctest.Wait() // nothing else wakes the Gateway anymore
		if _, err := c.Delete(t.Context(), client.RefOf(first), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.until("it has one again", func() bool {
			svc := c.service("front-monopod")
			return svc != nil && svc.UID != first.UID
		})
	})
}

// TestServiceStays makes the only listener of a Gateway invalid: the Service keeps its address meanwhile.
func TestServiceStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.apply(frontGateway)
		var first *corev1.Service
		c.until("the Gateway has a Service", func() bool { first = c.service("front-monopod"); return first != nil })
		c.edit("front", `"protocol":"HTTP"`, `"protocol":"UDP"`)
		c.until("the Gateway is not programmed", func() bool { return c.programmed("front") == "Invalid" })
		synctest.Wait()
		if svc := c.service("front-monopod"); svc == nil || svc.UID != first.UID {
			t.Errorf("the Service is %v", svc)
		}
	})
}

// TestForeignService creates a Gateway whose Service's name is in use, and then deletes that Service.
func TestForeignService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "front-monopod"},
			Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}}
		c.create(foreign)
		c.apply(frontGateway)
		c.until("the condition names the Service", func() bool { return c.programmed("front") == "NoResources" })
		synctest.Wait() // nothing else wakes the Gateway anymore
		if _, err := c.Delete(t.Context(), client.RefOf(foreign), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.until("the Gateway has the name", func() bool {
			svc := c.service("front-monopod")
			return svc != nil && metav1.IsControlledBy(svc, c.gateway("front"))
		})
	})
}

// TestClassChanges gives a Gateway another class of the controller, and then a foreign one.
func TestClassChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.apply(frontGateway + "\n---\nkind: GatewayClass\nmetadata: {name: second}\nspec: {controllerName: monopod.io/gateway}")
		c.until("the Gateway has a Service", func() bool { return c.service("front-monopod") != nil })
		change := func(from, to string) {
			c.edit("front", `"gatewayClassName":"`+from, `"gatewayClassName":"`+to)
		}
		change("monopod", "second")
		c.until("the new class has a Service", func() bool { return c.service("front-second") != nil })
		c.until("the Service of the old class is gone", func() bool { return c.service("front-monopod") == nil })
		change("second", "foreign")
		c.until("no Service is left", func() bool { return c.service("front-second") == nil })
		if reason := c.programmed("front"); reason != "Pending" {
			t.Errorf("the condition Programmed has the reason %s, want Pending", reason)
		}
	})
}

// TestAddressesThatCannotBeUsed gives the node addresses that the machine does not have.
func TestAddressesThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "198.51.100.77", "2001:db8::77")
		c.apply(frontGateway)
		c.until("the Gateway has a status", func() bool { return c.programmed("front") != "" })
	})
}

// TestQuiet runs the controllers of two servers, which must not write against each other or for ever.
func TestQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.start("second")
		c.apply(frontGateway + `
---
kind: HTTPRoute
metadata: {name: r}
spec: {parentRefs: [{name: front}, {name: front, sectionName: none}], rules: [{backendRefs: [{name: gone, port: 80}]}]}`)
		time.Sleep(time.Minute)
		before := c.revision()
		time.Sleep(time.Hour)
		if after := c.revision(); after != before {
			t.Errorf("an idle hour wrote from revision %s to %s", before, after)
		}
	})
}

func (c *cluster) revision() string {
	c.t.Helper()
	_, revision, err := c.List(c.t.Context(), client.Selector{Resource: gateways})
	if err != nil {
		c.t.Fatal(err)
	}
	return revision
}
