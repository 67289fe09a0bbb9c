package addon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Enable creates or updates the objects of an addon, and deletes those that an earlier version had. It writes nothing
// if a check fails. If the addon was not enabled before and Enable fails or is interrupted, it deletes what it has
// created.
func (a *Addons) Enable(ctx context.Context, set Set, opts Options) error {
	inv, err := a.api.inventory(ctx, set.Name)
	if err != nil {
		return err
	}
	first := inv == nil
	if first {
		inv = &inventory{}
	}
	objects, err := a.plan(ctx, set)
	if err != nil {
		return err
	}
	stale, problems := adopt(set.Name, objects, inv.entries, opts.Force)
	if len(problems) > 0 {
		return refusal("these objects are not of the addon "+set.Name+"; delete them, or take them over with --force "+
			"(they stay when the addon is disabled)", problems)
	}
	if err := a.check(ctx, set, objects, opts.Force); err != nil {
		return err
	}
	left, err := a.leftovers(ctx, set.Name, stale)
	if err == nil {
		err = refuseLeftovers(left, opts, "the new version lacks what these objects need")
	}
	if err != nil {
		return err
	}

	inv.set, inv.entries = set, append(entriesOf(objects), stale...)
	if err := a.api.save(ctx, inv); err != nil {
		return err
	}
	if err := a.applyAll(ctx, set, objects, opts); err != nil {
		return a.undo(ctx, inv, first, err)
	}
	inv.entries = append(entriesOf(objects), stale...) // now with the UIDs
	if err := a.api.save(ctx, inv); err != nil {
		return err
	}
	if len(stale) == 0 {
		return nil
	}
	if err := a.deleteAll(ctx, set.Name, left, stale, opts.Timeout); err != nil {
		return err
	}
	inv.entries = entriesOf(objects)
	return a.api.save(ctx, inv)
}

// undo deletes what the first Enable of an addon has created before it failed.
func (a *Addons) undo(ctx context.Context, inv *inventory, first bool, failure error) error {
	if !first {
		return fmt.Errorf("%w; the addon %s is only partly updated: enable it again, or disable it", failure, inv.set.Name)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollback)
	defer cancel()
	err := a.deleteAll(ctx, inv.set.Name, nil, inv.entries, rollback)
	if err == nil {
		err = a.api.remove(ctx, inv)
	}
	if err != nil {
		return fmt.Errorf("%w; what was created could not be deleted again: monopod addon disable %s: %w",
			failure, inv.set.Name, err)
	}
	return fmt.Errorf("%w; nothing of the addon was kept", failure)
}

func entriesOf(objects []planned) (all []entry) {
	for _, p := range objects {
		all = append(all, p.entry)
	}
	return all
}

// plan returns the objects of a set in the order in which they are applied, with their state on the server.
func (a *Addons) plan(ctx context.Context, set Set) (all []planned, err error) {
	custom, seen := defines(set.objects), map[id]object{}
	var problems []string
	for _, o := range set.objects {
		p := planned{object: object{Unstructured: *o.DeepCopy(), file: o.file, node: o.node}}
		p.entry, err = a.entryOf(ctx, o, custom)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v: %v", o.at("kind"), o, err))
			continue
		}
		if other, twice := seen[p.entry.id()]; twice {
			problems = append(problems, fmt.Sprintf("%s: %v: the same object is at %s", o.at(""), o, other.at("")))
			continue
		}
		seen[p.entry.id()] = o
		p.SetNamespace(p.entry.Namespace)
		if p.live, err = a.api.find(ctx, p.entry); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if len(problems) > 0 {
		return nil, refusal("nothing was written, because the addon "+set.Name+" has errors", problems)
	}
	order(all)
	return all, nil
}

// entryOf returns the entry of an object of a kind that the server serves, or that the addon defines.
func (a *Addons) entryOf(ctx context.Context, o object, custom map[schema.GroupKind]customKind) (entry, error) {
	gvk := o.GroupVersionKind()
	e := entry{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Name: o.GetName()}
	namespaced := false
	if kind, ok := custom[gvk.GroupKind()]; ok {
		if !slices.Contains(kind.versions, gvk.Version) {
			return e, fmt.Errorf("the definition of the kind serves the versions %s, not %s",
				strings.Join(kind.versions, ", "), gvk.Version)
		}
		e.Resource, namespaced = kind.resource, kind.namespaced
	} else {
		served, err := a.api.kind(ctx, gvk)
		if err != nil {
			return e, err
		}
		if served == nil {
			return e, fmt.Errorf("the server does not serve the kind %s in %s: add its definition to the addon, or enable "+
				"the addon that has it first", gvk.Kind, o.GetAPIVersion())
		}
		e.Resource, namespaced = served.Name, served.Namespaced
	}
	if namespaced {
		e.Namespace = o.GetNamespace()
		if e.Namespace == "" {
			e.Namespace = a.api.server.Namespace
		}
	}
	return e, nil
}

// check lets the server check objects without writing them, as far as it can before others exist: objects of kinds that
// the addon defines, and whether objects are permitted in a namespace that the addon creates, are not checked.
func (a *Addons) check(ctx context.Context, set Set, objects []planned, force bool) error {
	defined, created := definitions(entriesOf(objects)), map[string]bool{}
	for _, p := range objects {
		if p.entry.groupKind() == namespaceKind && p.live == nil {
			created[p.entry.Name] = true
		}
	}
	var problems []string
	for _, p := range objects {
		var err error
		switch {
		case p.entry.rank(defined) == rankCustom:
		case created[p.entry.Namespace]:
			err = a.api.validate(ctx, p, metav1.NamespaceDefault)
		case p.entry.Kind == "Pod" && p.entry.Group == "" && p.live == nil: // it needs its service account
			err = a.api.validate(ctx, p, p.entry.Namespace)
		default:
			_, _, err = a.api.apply(ctx, p.labelled(set.Name), force, true)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			problems = append(problems, p.failed(err).Error())
		}
	}
	if len(problems) > 0 {
		return refusal("nothing was written, because objects of the addon "+set.Name+" are not valid or not permitted",
			problems)
	}
	return nil
}

// labelled returns the object as it is applied: with the addon's label, unless somebody else created it.
func (p planned) labelled(addon string) planned {
	if p.entry.Kept {
		return p
	}
	p.Unstructured = *p.DeepCopy()
	labels := p.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[Label] = addon
	p.SetLabels(labels)
	return p
}

// applyAll applies the objects, and waits after definitions until their kinds are served. It notes the UIDs.
func (a *Addons) applyAll(ctx context.Context, set Set, objects []planned, opts Options) error {
	defined, established := definitions(entriesOf(objects)), false
	for i := range objects {
		p := &objects[i]
		if p.entry.rank(defined) > rankDefinition && !established {
			if err := a.establish(ctx, objects[:i], opts); err != nil {
				return err
			}
			established = true
		}
		written, warnings, err := a.api.apply(ctx, p.labelled(set.Name), opts.Force, false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return p.failed(err)
		}
		for _, text := range warnings {
			fmt.Fprintf(a.warn, "Warning: %v: %s\n", p.entry, text)
		}
		p.entry.UID = written.UID
		fmt.Fprintln(a.out, p.entry, verb(p.live, written))
	}
	if !established {
		return a.establish(ctx, objects, opts)
	}
	return nil
}

// verb says what an apply has done, in kubectl's words.
func verb(before, after *metav1.PartialObjectMetadata) string {
	switch {
	case before == nil:
		return "created"
	case before.ResourceVersion == after.ResourceVersion:
		return "unchanged"
	}
	return "configured"
}

// establish waits until the kinds of the definitions among the objects are served.
func (a *Addons) establish(ctx context.Context, objects []planned, opts Options) error {
	for _, p := range objects {
		if p.entry.groupKind() != definitionKind {
			continue
		}
		err := until(ctx, opts.Timeout, p.entry.String()+" is not established", func() (bool, error) {
			var definition struct {
				Status apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
			}
			if err := a.api.get(ctx, p.entry.path(), "", &definition); err != nil {
				return false, err
			}
			return isEstablished(definition.Status.Conditions)
		})
		if err != nil {
			return p.failed(err)
		}
	}
	a.api.forget()
	return nil
}

// isEstablished reports whether a definition with these conditions is served. It returns an error if another one has
// its names.
func isEstablished(conditions []apiextensionsv1.CustomResourceDefinitionCondition) (ok bool, err error) {
	for _, c := range conditions {
		switch {
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			return false, errors.New(c.Message)
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			ok = true
		}
	}
	return ok, nil
}
