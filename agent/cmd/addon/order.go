package addon

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The ranks of objects, in the order in which they are applied. They are deleted in reverse order, and each rank is
// gone before the deletion of the next one begins.
const (
	rankNamespace  = iota
	rankDefinition // of custom kinds
	rankOther      // in the order of the manifests
	rankCustom     // objects of kinds that the addon defines
	rankAdmission  // refuses objects, maybe those of the addon, and calls pods that have to run first
)

var (
	namespaceKind  = schema.GroupKind{Kind: "Namespace"}
	definitionKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}
)

// entry is an object in an inventory.
type entry struct {
	Group     string    `json:"group,omitempty"`
	Version   string    `json:"version"`
	Kind      string    `json:"kind"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`  // empty: the object is about to be created
	Kept      bool      `json:"kept,omitempty"` // somebody else created the object: it is not deleted
}

// id identifies an object whatever its version.
type id struct{ group, kind, namespace, name string }

func (e entry) id() id         { return id{e.Group, e.Kind, e.Namespace, e.Name} }
func (e entry) String() string { return describe(e.Kind, e.Namespace, e.Name) }

func (e entry) groupKind() schema.GroupKind { return schema.GroupKind{Group: e.Group, Kind: e.Kind} }

// definition returns the name of the definition that the object has if its kind is a custom one.
func (e entry) definition() string { return e.Resource + "." + e.Group }

// definitions returns the names of the definitions among the entries.
func definitions(all []entry) map[string]bool {
	names := map[string]bool{}
	for _, e := range all {
		if e.groupKind() == definitionKind {
			names[e.Name] = true
		}
	}
	return names
}

// rank returns the rank of an object; defined are the names of the addon's definitions.
func (e entry) rank(defined map[string]bool) int {
	switch {
	case e.groupKind() == namespaceKind:
		return rankNamespace
	case e.groupKind() == definitionKind:
		return rankDefinition
	case e.Group == "admissionregistration.k8s.io":
		return rankAdmission
	case defined[e.definition()]:
		return rankCustom
	}
	return rankOther
}

// planned is an object to be applied, with its entry and its present state.
type planned struct {
	object
	entry entry
	live  *metav1.PartialObjectMetadata // nil: it does not exist
}

// order sorts objects into the order in which they are applied.
func order(all []planned) {
	var entries []entry
	for _, p := range all {
		entries = append(entries, p.entry)
	}
	defined := definitions(entries)
	slices.SortStableFunc(all, func(a, b planned) int {
		return cmp.Compare(a.entry.rank(defined), b.entry.rank(defined))
	})
}

// customKind is a kind as its definition states it.
type customKind struct {
	resource   string
	namespaced bool
	versions   []string
}

// defines returns the custom kinds that the objects define.
func defines(objects []object) map[schema.GroupKind]customKind {
	kinds := map[schema.GroupKind]customKind{}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() != definitionKind {
			continue
		}
		text := func(field ...string) string {
			value, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, field...)...)
			return value
		}
		kind := customKind{resource: text("names", "plural"), namespaced: text("scope") == "Namespaced"}
		versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
		for _, v := range versions {
			if version, ok := v.(map[string]any); ok && version["served"] == true {
				name, _ := version["name"].(string)
				kind.versions = append(kind.versions, name)
			}
		}
		kinds[schema.GroupKind{Group: text("group"), Kind: text("names", "kind")}] = kind
	}
	return kinds
}

// owns reports whether the addon created the object of an entry.
func owns(addon string, e entry, live *metav1.PartialObjectMetadata) bool {
	if e.UID == "" {
		return live.Labels[Label] == addon
	}
	return e.UID == live.UID
}

// adopt completes the entries of the objects with what the inventory and the server have of them, and returns the
// entries of the inventory that are no longer among the objects. problems are objects that the addon must not change.
func adopt(addon string, objects []planned, inventory []entry, force bool) (stale []entry, problems []string) {
	known := map[id]entry{}
	for _, e := range inventory {
		known[e.id()] = e
	}
	for i := range objects {
		p := &objects[i]
		was := known[p.entry.id()]
		delete(known, p.entry.id())
		switch {
		case p.live == nil:
		case p.live.DeletionTimestamp != nil:
			problems = append(problems, p.entry.String()+" is being deleted: wait until it is gone")
		case owns(addon, was, p.live):
			p.entry.UID, p.entry.Kept = p.live.UID, was.Kept
		case force:
			p.entry.UID, p.entry.Kept = p.live.UID, true
		default:
			problems = append(problems, p.entry.String()+origin(p.live))
		}
	}
	for _, e := range inventory {
		if _, left := known[e.id()]; left {
			stale = append(stale, e)
		}
	}
	return stale, problems
}

// origin says who created an object.
func origin(live *metav1.PartialObjectMetadata) string {
	if other := live.Labels[Label]; other != "" {
		return ", of the addon " + other
	}
	var managers []string
	for _, f := range live.ManagedFields {
		if f.Subresource == "" && !slices.Contains(managers, f.Manager) {
			managers = append(managers, f.Manager)
		}
	}
	if len(managers) == 0 {
		return ""
	}
	return ", written by " + strings.Join(managers, ", ")
}
