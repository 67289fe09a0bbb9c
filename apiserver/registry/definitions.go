package registry

import (
	"context"
	"slices"

	"monopod/apiserver/registry/custom"
	"monopod/apiserver/registry/reload"
	"monopod/store"
)

// Definitions keeps the custom kinds of a registry in sync with the CustomResourceDefinitions.
type Definitions struct{ registry *Registry }

// NewDefinitions returns the Definitions of r.
func NewDefinitions(r *Registry) Definitions { return Definitions{r} }

// Load serves the custom kinds of all stored CustomResourceDefinitions, and returns the revision of the list.
func (d Definitions) Load(ctx context.Context) (int64, error) {
	r := d.registry
	entries, rev, err := r.store.List(ctx, definitionSelector())
	if err != nil {
		return 0, err
	}
	listed := make(map[string]bool, len(entries))
	for _, e := range entries {
		listed[e.Key.Name] = true
		if len(e.Object.(*custom.Definition).Status.Conditions) == 0 { // new: no object of it exists yet
			custom.RemoveOrphans(ctx, r.store, e, r.log)
		}
		d.serve(e)
	}
	for _, name := range r.DefinitionNames() {
		if !listed[name] {
			d.remove(name)
		}
	}
	return rev, nil
}

func definitionSelector() store.Selector { return store.Selector{Resource: custom.DefinitionsName} }

// Run applies each change of a CustomResourceDefinition at once, until ctx ends.
func (d Definitions) Run(ctx context.Context) error {
	follower := reload.Follower{Store: d.registry.store, Clock: d.registry.clock, Log: d.registry.log}
	return follower.Run(ctx, definitionSelector(), d.Load, func(ev *store.Event) {
		if ev.New != nil {
			if ev.Old == nil {
				custom.RemoveOrphans(ctx, d.registry.store, ev.New, d.registry.log)
			}
			d.serve(ev.New)
		} else {
			d.remove(ev.Key.Name)
		}
	})
}

// waitServed waits until the kinds of a new CustomResourceDefinition are served, for at most Config.Establish: they
// never are if its names are in use.
func (r *Registry) waitServed(ctx context.Context, name string) {
	limit := r.clock.NewTimer(r.establish)
	defer limit.Stop()
	for changed := r.Changed(); !slices.Contains(r.DefinitionNames(), name); changed = r.Changed() {
		select {
		case <-changed:
		case <-limit.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// remove stops serving the kinds of the named CustomResourceDefinition.
func (d Definitions) remove(name string) {
	d.registry.Install(name, nil)
	d.registry.kinds.Forget(name)
}

// serve serves the kinds of the CustomResourceDefinition.
func (d Definitions) serve(e *store.Entry) {
	d.registry.Install(e.Key.Name, d.registry.kinds.Of(e.Object.(*custom.Definition)))
}
