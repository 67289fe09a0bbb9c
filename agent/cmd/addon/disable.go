package addon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Disable deletes the objects that the addon created, waits until they are gone, and deletes the inventory. It refuses
// while there are objects of others that would be deleted too, unless opts.DeleteObjects.
func (a *Addons) Disable(ctx context.Context, name string, opts Options) error {
	inv, err := a.api.inventory(ctx, name)
	if err != nil {
		return err
	}
	if inv == nil {
		return fmt.Errorf("the addon %q is not enabled; monopod addon list shows those that are", name)
	}
	left, err := a.leftovers(ctx, name, inv.entries)
	if err == nil {
		err = refuseLeftovers(left, opts, "disabling "+name+" would delete these objects, too")
	}
	if err == nil {
		err = a.deleteAll(ctx, name, left, inv.entries, opts.Timeout)
	}
	if err != nil {
		return err
	}
	return a.api.remove(ctx, inv)
}

func refuseLeftovers(left []entry, opts Options, sentence string) error {
	if len(left) == 0 || opts.DeleteObjects {
		return nil
	}
	var names []string
	for _, e := range left {
		names = append(names, e.String())
	}
	return refusal(sentence+"; delete them first, or add --delete-objects", names)
}

// contents are the kinds whose objects in a namespace of the addon are lost with it: what runs, and what it stores.
// Operators and controllers write objects of other kinds there for themselves.
func contents() []entry {
	return []entry{
		{Version: "v1", Kind: "PersistentVolumeClaim", Resource: "persistentvolumeclaims"},
		{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet", Resource: "statefulsets"},
		{Group: "apps", Version: "v1", Kind: "DaemonSet", Resource: "daemonsets"},
		{Group: "batch", Version: "v1", Kind: "CronJob", Resource: "cronjobs"},
		{Group: "batch", Version: "v1", Kind: "Job", Resource: "jobs"},
		{Version: "v1", Kind: "Pod", Resource: "pods"},
	}
}

// leftovers returns the objects that others created, and that the deletion of the entries would delete too: the objects
// of the definitions, and what is in the namespaces.
func (a *Addons) leftovers(ctx context.Context, addon string, entries []entry) (left []entry, err error) {
	own := map[id]bool{}
	for _, e := range entries {
		own[e.id()] = !e.Kept
	}
	for _, e := range entries {
		if kind := e.groupKind(); e.Kept || kind != definitionKind && kind != namespaceKind {
			continue
		}
		live, err := a.api.find(ctx, e)
		if err != nil {
			return nil, err
		}
		if live == nil || !owns(addon, e, live) {
			continue
		}
		kinds := contents()
		if e.groupKind() == definitionKind {
			if kinds, err = a.customKinds(ctx, e.Name); err != nil {
				return nil, err
			}
		}
		for _, kind := range kinds {
			if e.groupKind() == namespaceKind {
				kind.Namespace = e.Name
			}
			others, err := a.others(ctx, kind, own)
			if err != nil {
				return nil, err
			}
			left = append(left, others...)
		}
	}
	return left, nil
}

// others returns the objects of a kind, in its namespace if it has one, that are not the addon's own and that no
// controller has created.
func (a *Addons) others(ctx context.Context, kind entry, own map[id]bool) (all []entry, err error) {
	objects, err := a.api.list(ctx, kind.collection())
	for _, o := range objects {
		e := kind
		e.Namespace, e.Name, e.UID = o.Namespace, o.Name, o.UID
		if !own[e.id()] && metav1.GetControllerOf(&o) == nil {
			all = append(all, e)
		}
	}
	return all, err
}

// customKinds returns the kind of a definition, RESOURCE.GROUP, if it is served.
func (a *Addons) customKinds(ctx context.Context, definition string) ([]entry, error) {
	resource, group, _ := strings.Cut(definition, ".")
	var served metav1.APIGroupList
	if err := a.api.get(ctx, "/apis", "", &served); err != nil {
		return nil, err
	}
	for _, g := range served.Groups {
		for _, v := range g.Versions {
			if g.Name != group {
				continue
			}
			var list metav1.APIResourceList
			gv := schema.GroupVersion{Group: group, Version: v.Version}
			if err := a.api.get(ctx, root(gv), "", &list); err != nil {
				return nil, err
			}
			at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource })
			if at >= 0 {
				return []entry{{Group: group, Version: v.Version, Kind: list.APIResources[at].Kind, Resource: resource}}, nil
			}
		}
	}
	return nil, nil
}

// deleteAll deletes the leftovers, then the entries in reverse order, and waits until they are gone, rank by rank. It
// deletes only objects that are still those of the entries.
func (a *Addons) deleteAll(ctx context.Context, addon string, left, entries []entry, timeout time.Duration) error {
	if err := a.deleteRank(ctx, addon, left, timeout); err != nil {
		return err
	}
	defined := definitions(entries)
	for rank := rankAdmission; rank >= rankNamespace; rank-- {
		var all []entry
		for _, e := range slices.Backward(entries) {
			if e.rank(defined) == rank {
				all = append(all, e)
			}
		}
		if err := a.deleteRank(ctx, addon, all, timeout); err != nil {
			return err
		}
		a.api.forget()
	}
	return nil
}

// deleteRank deletes objects, and waits until they are gone.
func (a *Addons) deleteRank(ctx context.Context, addon string, entries []entry, timeout time.Duration) error {
	var deleted []entry
	for _, e := range entries {
		live, err := a.api.find(ctx, e)
		switch {
		case err != nil:
			return err
		case live == nil:
			continue
		case e.Kept:
			fmt.Fprintln(a.out, e, "stays: it existed before the addon")
			continue
		case !owns(addon, e, live):
			fmt.Fprintf(a.out, "%v stays: it has replaced the object of the addon%s\n", e, origin(live))
			continue
		}
		// What the object owns, such as pods, is gone first.
		if err := a.api.delete(ctx, e, live.UID, metav1.DeletePropagationForeground); err != nil {
			return fmt.Errorf("cannot delete %v: %w", e, err)
		}
		e.UID = live.UID
		deleted = append(deleted, e)
	}
	for _, e := range deleted {
		finalizers := ""
		err := until(ctx, timeout, e.String()+" is not gone", func() (bool, error) {
			live, err := a.api.find(ctx, e)
			if err != nil || live == nil || live.UID != e.UID {
				return err == nil, err
			}
			finalizers = strings.Join(live.Finalizers, ", ")
			return false, nil
		})
		if err != nil && finalizers != "" {
			err = fmt.Errorf("%w: it has the finalizers %s", err, finalizers)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(a.out, e, "deleted")
	}
	return nil
}
