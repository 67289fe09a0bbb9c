// Cache tests controller-runtime's cache and client with every served kind, as operators use them:
//
//	cache KUBECONFIG
//
// It syncs a typed, an unstructured and a metadata informer of each kind, writes one object of each and reads it
// back from the cache. Then it prints "done".
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"monopod/testdata/clients/samples"
)

// syncTime is the timeout of the whole program.
const syncTime = 90 * time.Second

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func run() error {
	if len(os.Args) != 2 {
		return errors.New("usage: cache KUBECONFIG")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	if err != nil {
		return err
	}
	cfg.QPS = -1 // no client-side rate limit
	kinds, err := samples.Served(cfg)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), syncTime)
	defer cancel()
	c, err := cache.New(cfg, cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	writer, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	for _, kind := range kinds {
		if err := follow(ctx, c, writer, kind); err != nil {
			return fmt.Errorf("%s: %w", kind.GVR, err)
		}
	}
	cancel()
	return <-ended
}

// follow creates an object, waits until the cache has it in every form, and deletes it.
func follow(ctx context.Context, c cache.Cache, writer client.Client, kind samples.Sample) error {
	want := kind.Object("cached")
	gvk := want.GroupVersionKind()
	forms, err := formsOf(gvk)
	if err != nil {
		return err
	}
	for _, form := range forms {
		if _, err := c.GetInformer(ctx, form); err != nil {
			return err
		}
	}
	if err := writer.Create(ctx, want); err != nil {
		return err
	}
	for _, form := range forms {
		for c.Get(ctx, client.ObjectKeyFromObject(want), form) != nil {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the cache does not contain the object as %T: timeout", form)
			}
		}
		if form.GetUID() != want.GetUID() {
			return fmt.Errorf("the cache contains a %T with UID %s, want %s", form, form.GetUID(), want.GetUID())
		}
	}
	return writer.Delete(ctx, want)
}

// formsOf returns empty objects of a kind: a typed one if client-go has the type, an unstructured and a metadata-only
// one.
func formsOf(gvk schema.GroupVersionKind) ([]client.Object, error) {
	loose, meta := &unstructured.Unstructured{}, &metav1.PartialObjectMetadata{}
	loose.SetGroupVersionKind(gvk)
	meta.SetGroupVersionKind(gvk)
	if !samples.InClientGo(gvk.Group) {
		return []client.Object{loose, meta}, nil
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return []client.Object{typed.(client.Object), loose, meta}, nil
}
