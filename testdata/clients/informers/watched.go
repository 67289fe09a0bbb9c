package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"monopod/testdata/clients/samples"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// note is one event of an informer: its type, the name of the object, and the value of the label "changed".
type note struct {
	what, name, label string
}

// eye is one informer with its received events.
type eye struct {
	samples.Sample
	how      string // typed, dynamic, metadata
	informer cache.SharedIndexInformer
	notes    chan note
}

// watched is the list of all informers.
type watched []*eye

const (
	label  = "changed"
	noteds = 10_000
)

func (w *watched) add(sample samples.Sample, how string, informer cache.SharedIndexInformer) error {
	e := &eye{Sample: sample, how: how, informer: informer, notes: make(chan note, noteds)}
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

// await reads notes until one matches.
func (e *eye) await(ctx context.Context, want note) error {
	want.name = e.Name(want.name)
	for {
		select {
		case n := <-e.notes:
			if n == want {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the %s informer of %s did not receive %+v: timeout", e.how, e.GVR.Resource, want)
		}
	}
}

func (w watched) synced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	for _, e := range w {
		if !cache.WaitForCacheSync(ctx.Done(), e.informer.HasSynced) {
			return fmt.Errorf("the %s informer of %s has not synced: timeout", e.how, e.GVR.Resource)
		}
	}
	return nil
}

// round creates, changes and deletes an object of each kind. After each step it waits for the events of all informers.
func (w watched) round(ctx context.Context, writer dynamic.Interface, kinds []samples.Sample, name string) error {
	ctx, cancel := context.WithTimeout(ctx, roundTime)
	defer cancel()
	steps := []struct {
		want note
		do   func(dynamic.ResourceInterface, samples.Sample) error
	}{
		{note{"add", name, ""}, func(c dynamic.ResourceInterface, s samples.Sample) error {
			return retried(ctx, func() error {
				_, err := c.Create(ctx, s.Object(name), metav1.CreateOptions{})
				return err
			})
		}},
		{note{"update", name, "yes"}, func(c dynamic.ResourceInterface, s samples.Sample) error {
			_, err := c.Patch(ctx, s.Name(name), types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":"yes"}}}`),
				metav1.PatchOptions{})
			return err
		}},
		{note{"delete", name, "yes"}, func(c dynamic.ResourceInterface, s samples.Sample) error {
			return c.Delete(ctx, s.Name(name), metav1.DeleteOptions{})
		}},
	}
	for _, step := range steps {
		for _, s := range kinds {
			var c dynamic.ResourceInterface = writer.Resource(s.GVR)
			if s.Namespaced {
				c = writer.Resource(s.GVR).Namespace("default")
			}
			if err := step.do(c, s); err != nil {
				return fmt.Errorf("%s of %s: %w", step.want.what, s.GVR, err)
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

// retried calls do until it succeeds, because a server that has just started may reject it.
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
