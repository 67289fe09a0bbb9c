// Cbor uses client-go's dynamic client, which sends CBOR if client-go's feature gates enable it. It creates, applies,
// reads, lists and watches a ConfigMap, and prints the content types of requests and responses.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// printed is a transport that prints the content types of each request and response.
type printed struct{ http.RoundTripper }

func (p printed) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.RoundTripper.RoundTrip(r)
	if err == nil {
		fmt.Println(r.Method, resp.StatusCode, "sent", r.Header.Get("Content-Type"), "received",
			resp.Header.Get("Content-Type"))
	}
	return resp, err
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return printed{next} })
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default")
	obj := func(value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "c"}, "data": map[string]any{"k": value}}}
	}
	if _, err := maps.Create(ctx, obj("one"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := maps.Apply(ctx, "c", obj("two"), metav1.ApplyOptions{FieldManager: "m", Force: true}); err != nil {
		return err
	}
	got, err := maps.Get(ctx, "c", metav1.GetOptions{})
	if err != nil {
		return err
	}
	value, _, _ := unstructured.NestedString(got.Object, "data", "k")
	fmt.Println("read", value)
	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=c"})
	if err != nil {
		return err
	}
	fmt.Println("listed", len(list.Items))
	events, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=c"})
	if err != nil {
		return err
	}
	defer events.Stop()
	event := <-events.ResultChan()
	fmt.Println("watched", event.Type, event.Object.(*unstructured.Unstructured).GetName())
	return maps.Delete(ctx, "c", metav1.DeleteOptions{})
}
