// Package custom contains the kind CustomResourceDefinition and the custom kinds that definitions define.
//
//   - Object: an object of a custom kind, in encoded form.
//   - Version: a version of a custom kind with its compiled schema.
//   - Kinds: the resources of definitions.
//
// The schemas are those of k8s.io/apiextensions-apiserver. They are compiled on first use and released when idle.
//
//   - bounds.go: limits of the memory and time that definitions and their objects cost. A definition of a few KB can
//     take gigabytes or minutes, and upstream's packages limit only the cost of rules
//   - definition.go: the kind CustomResourceDefinition
package custom

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/clock"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"monopod/apiserver/kit/crd"
	"monopod/apiserver/kit/idlecache"
	"monopod/apiserver/registry/definitions"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/webhook"
)

// Definition is a CustomResourceDefinition.
type Definition = crd.Definition

// Kinds creates the resources of definitions.
type Kinds struct {
	clock clock.WithDelayedExecution
	// shared contains the schemas of metadata and lists, to which those of custom kinds refer.
	shared *idlecache.Value[*definitions.Set]
	// network connects to conversion webhooks.
	network     webhook.Network
	conversions conversionCache // results of conversion webhooks

	mu       sync.Mutex // guards webhooks
	webhooks map[string]*conversionWebhook
}

// NewKinds returns a Kinds.
func NewKinds(clock clock.WithDelayedExecution, network webhook.Network) *Kinds {
	return &Kinds{clock: clock, shared: idlecache.New(clock, idle, definitions.Read), network: network,
		webhooks: map[string]*conversionWebhook{}}
}

// Of returns the resources of a definition: one for each served version, all of them views of the stored one; nil if
// the definition's names are not accepted. The caller must not modify the definition afterwards.
func (k *Kinds) Of(def *Definition) []*kind.Resource {
	if d := &def.CustomResourceDefinition; !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) &&
		!apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		return nil
	}
	var all []*Version
	var storage *Version
	for i := range def.Spec.Versions {
		v := k.newVersion(def, &def.Spec.Versions[i])
		all = append(all, v)
		if v.spec.Storage {
			storage = v
		}
	}
	if storage == nil {
		return nil // validation rejects it
	}
	base := storage.base()
	webhook := k.webhook(def)
	var out []*kind.Resource
	for _, v := range all {
		v.webhook, v.siblings = webhook, all
		if v.spec.Served || v.spec.Storage && def.DeletionTimestamp != nil { // the deletion of the objects needs it
			out = append(out, v.served(base, storage))
		}
	}
	return out
}

// resource returns the fields that the stored and the served resource of a version have in common.
func (v *Version) resource() *kind.Resource {
	names := v.def.Status.AcceptedNames
	res := &kind.Resource{
		GVR:  schema.GroupVersionResource{Group: v.def.Spec.Group, Version: v.name, Resource: names.Plural},
		Kind: names.Kind, ListKind: names.ListKind, Singular: names.Singular,
		ShortNames: names.ShortNames, Categories: names.Categories,
		Namespaced: v.def.Spec.Scope == apiextensionsv1.NamespaceScoped, Qualified: true,
		StoredAs: names.Plural + "." + v.def.Spec.Group, Schema: v,
		New:    v.new,
		Fields: fieldsOf(v.spec), Columns: columnsWith(v.spec, &lastRow{}),
	}
	if v.hasStatus() {
		res.Subresources = append(res.Subresources, kind.Subresource{Name: "status", Part: true,
			Reset: fieldpath.NewIncludeMatcherFilter(fieldpath.MakePrefixMatcherOrDie("status"))})
	}
	if scale := v.scale(); scale != nil {
		res.Subresources = append(res.Subresources, kind.ScalePart(scaleOf(scale)))
	}
	if v.def.DeletionTimestamp != nil {
		res.Verbs = []string{"delete", "deletecollection", "get", "list", "watch"}
		res.Ending = terminatingMessage
	}
	if v.spec.Deprecated {
		res.Deprecated = fmt.Sprintf("%s/%s %s is deprecated", res.GVR.Group, v.name, res.Kind)
		if text := v.spec.DeprecationWarning; text != nil {
			res.Deprecated = *text
		}
	}
	return res
}

func (v *Version) new() kind.Object {
	o := &Object{version: v}
	o.Kind, o.APIVersion = v.def.Status.AcceptedNames.Kind, v.apiVersion
	return o
}

// base returns the stored resource.
func (v *Version) base() *kind.Resource {
	res := v.resource()
	res.Prepare = v.prepare
	res.Validate = func(next, cur kind.Object, subresource string) field.ErrorList {
		if o := next.(*Object); !o.valid {
			return v.validate(o, asObject(cur), subresource)
		}
		return nil
	}
	res.Warnings = finalizerWarnings
	return res
}

// served returns the resource that clients see.
func (v *Version) served(base *kind.Resource, storage *Version) *kind.Resource {
	res := v.resource()
	res.View = &kind.View{
		Of: base.GVR, Base: base,
		Show:  func(stored kind.Object) kind.Object { return v.show(stored.(*Object)) },
		Store: func(shown kind.Object) kind.Object { return storage.show(shown.(*Object)) },
	}
	if v.webhook != nil {
		res.View.Show = func(stored kind.Object) kind.Object { return v.withAPIVersion(stored.(*Object)) }
		res.View.Store = func(shown kind.Object) kind.Object { return storage.withAPIVersion(shown.(*Object)) }
		res.View.Converter = conversion{v, storage}
	}
	res.Validate = func(next, cur kind.Object, subresource string) field.ErrorList {
		o := next.(*Object)
		v.restoreOtherFields(o, asObject(cur), subresource)
		return v.validate(o, asObject(cur), subresource)
	}
	return res
}

func asObject(obj kind.Object) *Object {
	o, _ := obj.(*Object)
	return o
}

// restoreOtherFields restores the fields that a write to the subresource does not change.
func (v *Version) restoreOtherFields(next, cur *Object, subresource string) {
	switch {
	case subresource == "status":
		status := next.member("status")
		next.members, next.content = cur.members, nil
		next.replace("status", status)
	case v.hasStatus() && cur != nil:
		next.replace("status", cur.member("status"))
	case v.hasStatus():
		next.replace("status", nil)
	}
}

// prepare implements kind.Resource's Prepare.
func (v *Version) prepare(next, cur kind.Object, subresource string) {
	is, was := next.(*Object), asObject(cur)
	switch subresource {
	case "delete":
		return
	case "status": // restore everything else, including labels
		managers, version := is.ManagedFields, is.ResourceVersion
		was.ObjectMeta.DeepCopyInto(&is.ObjectMeta)
		is.ManagedFields, is.ResourceVersion = managers, version
		v.restoreOtherFields(is, was, subresource)
		return
	}
	v.restoreOtherFields(is, was, subresource)
	switch {
	case was == nil:
		is.Generation = 1
	case !is.EqualContent(was):
		is.Generation = was.Generation + 1
	}
}

// show returns an object in this version: with the version's apiVersion and defaults, and without unknown fields. It
// returns the object itself if nothing changes.
func (v *Version) show(o *Object) *Object {
	if o.APIVersion == v.apiVersion && (o.version == v || o.unchanged.Load() == v) {
		return o
	}
	out := o.DeepCopyObject().(*Object)
	out.APIVersion, out.version, out.valid = v.apiVersion, v, o.valid
	if o.unchanged.Load() == v {
		return out
	}
	all, err := o.Content()
	if err == nil {
		all["apiVersion"] = v.apiVersion
		_, err = out.fill(all, unlimited)
		out.content = nil
		o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	}
	if err != nil { // show the stored content if the schema does not compile
		out.members = o.members
		return out
	}
	out.valid = o.valid
	if out.EqualContent(o) {
		o.unchanged.Store(v)
		if o.APIVersion == v.apiVersion {
			return o
		}
	}
	return out
}

// fieldsOf returns the function that reads a version's selectable fields.
func fieldsOf(spec *apiextensionsv1.CustomResourceDefinitionVersion) func(kind.Object) fields.Set {
	if len(spec.SelectableFields) == 0 {
		return nil
	}
	paths := make([]string, len(spec.SelectableFields))
	for i, f := range spec.SelectableFields {
		paths[i] = f.JSONPath
	}
	return func(obj kind.Object) fields.Set {
		set := fields.Set{}
		all, err := obj.(*Object).Content()
		for _, path := range paths {
			value := ""
			if err == nil {
				value = selected(all, path)
			}
			set[strings.TrimPrefix(path, ".")] = value
		}
		return set
	}
}

func selected(all map[string]any, path string) string {
	p := jsonpath.New("selectableField").AllowMissingKeys(true)
	if p.Parse("{"+path+"}") != nil {
		return ""
	}
	results, err := p.FindResults(all)
	if err != nil || len(results) == 0 || len(results[0]) == 0 || results[0][0].Interface() == nil {
		return ""
	}
	return fmt.Sprint(results[0][0].Interface())
}
