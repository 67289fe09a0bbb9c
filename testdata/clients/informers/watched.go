package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// note is one thing that an informer told: what happened to an object, with the
// label that marks a change.
type note struct {
	what, name, label string
}

// eye is one informer and what it tells.
type eye struct {
	gvr      schema.GroupVersionResource
	how      string // typed, dynamic, metadata
	informer cache.SharedIndexInformer
	notes    chan note
}

// watched are all informers.
type watched []*eye

const (
	label  = "changed"
	noteds = 10_000
)

func (w *watched) add(gvr schema.GroupVersionResource, how string, informer cache.SharedIndexInformer) error {
	e := &eye{gvr: gvr, how: how, informer: informer, notes: make(chan note, noteds)}
	*w = append(*w, e)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { e.tell("add", obj) },
		UpdateFunc: func(_, obj any) { e.tell("update", obj) },
		DeleteFunc: func(obj any) { e.tell("delete", obj) },
	})
	return err
}

func (e *eye) tell(what string, obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if m, ok := obj.(metav1.Object); ok {
		e.notes <- note{what, m.GetName(), m.GetLabels()[label]}
	}
}

// await reads notes until one is as wanted.
func (e *eye) await(ctx context.Context, want note) error {
	for {
		select {
		case n := <-e.notes:
			if n == want {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the %s informer of %s never told %+v", e.how, e.gvr.Resource, want)
		}
	}
}

func (w watched) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	for _, e := range w {
		if !cache.WaitForCacheSync(ctx.Done(), e.informer.HasSynced) {
			return fmt.Errorf("the %s informer of %s has no first list", e.how, e.gvr.Resource)
		}
	}
	return nil
}

// round writes an object of each kind, changes and deletes it, and waits until
// every informer told so.
func (w watched) round(ctx context.Context, writer dynamic.Interface, name string) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	steps := []struct {
		want note
		do   func(dynamic.ResourceInterface, schema.GroupVersionResource) error
	}{
		{note{"add", name, ""}, func(c dynamic.ResourceInterface, gvr schema.GroupVersionResource) error {
			return retried(ctx, func() error {
				_, err := c.Create(ctx, body(gvr, name), metav1.CreateOptions{})
				return err
			})
		}},
		{note{"update", name, "yes"}, func(c dynamic.ResourceInterface, _ schema.GroupVersionResource) error {
			_, err := c.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":"yes"}}}`), metav1.PatchOptions{})
			return err
		}},
		{note{"delete", name, "yes"}, func(c dynamic.ResourceInterface, _ schema.GroupVersionResource) error {
			return c.Delete(ctx, name, metav1.DeleteOptions{})
		}},
	}
	for _, step := range steps {
		for gvr := range kinds {
			var c dynamic.ResourceInterface = writer.Resource(gvr)
			if ns := namespaceOf(gvr); ns != "" {
				c = writer.Resource(gvr).Namespace(ns)
			}
			if err := step.do(c, gvr); err != nil {
				return fmt.Errorf("%s of %s: %w", step.want.what, gvr.Resource, err)
			}
		}
		for _, e := range w {
			if err := e.await(ctx, step.want); err != nil {
				return err
			}
		}
	}
	return nil
}

// retried tries until a server that was just started takes it.
func retried(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
