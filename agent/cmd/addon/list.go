package addon

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The states of an addon.
const (
	Enabled    = "enabled"
	Disabled   = "disabled"
	Incomplete = "incomplete" // objects of the inventory are missing, or have been replaced
)

// Status describes an addon for users.
type Status struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Version     string   `json:"version,omitempty"` // that is enabled, otherwise that is built in
	BuiltIn     string   `json:"builtIn,omitempty"` // the version in this program; empty: the addon is from files
	Description string   `json:"description"`
	Missing     []string `json:"missing,omitempty"` // of an incomplete addon
}

// List returns the addons that are built in or enabled, in the order of their names.
func (a *Addons) List(ctx context.Context) (all []Status, err error) {
	for _, b := range builtIn() {
		all = append(all, Status{Name: b.name, State: Disabled, Version: b.version, BuiltIn: b.version,
			Description: b.description})
	}
	var list corev1.ConfigMapList
	if err := a.api.get(ctx, InventoriesPath(), "", &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		inv, err := inventoryOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		s := Status{Name: inv.set.Name, State: Enabled, Version: inv.set.Version}
		if s.Missing, err = a.missing(ctx, inv); err != nil {
			return nil, err
		}
		if len(s.Missing) > 0 {
			s.State = Incomplete
		}
		at := slices.IndexFunc(all, func(b Status) bool { return b.Name == s.Name })
		switch {
		case inv.set.Source != "":
			s.Description = "from " + inv.set.Source
		case at >= 0:
			s.Description, s.BuiltIn = all[at].Description, all[at].BuiltIn
		default:
			s.Description = "built into another version of monopod"
		}
		if at >= 0 {
			all[at] = s
		} else {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// missing returns the objects of an inventory that do not exist, or that others have replaced.
func (a *Addons) missing(ctx context.Context, inv *inventory) (all []string, err error) {
	for _, e := range inv.entries {
		live, err := a.api.find(ctx, e)
		if err != nil {
			return nil, err
		}
		if live == nil || !owns(inv.set.Name, e, live) {
			all = append(all, e.String())
		}
	}
	return all, nil
}
