package custom

import (
	"context"
	"fmt"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"monopod/apiserver/kit/idlecache"
	"monopod/apiserver/registry/expressions"
)

// idle is the time that a compiled schema stays in memory after its last use.
const idle = 5 * time.Minute

// Version is a version of a custom kind. Its schema is compiled on first use.
type Version struct {
	kinds      *Kinds
	name       string
	apiVersion string // of the objects
	def        *Definition
	spec       *apiextensionsv1.CustomResourceDefinitionVersion
	schemas    *idlecache.Value[*compiled]
	types      *idlecache.Value[managedfields.TypeConverter]
	// webhook converts objects of other versions; nil: conversion changes only the apiVersion and applies the schema.
	webhook  *conversionWebhook
	siblings []*Version // all versions of the definition
}

// compiled contains the compiled forms of a schema.
type compiled struct {
	structural     *schema.Structural // nil: fields are neither removed nor defaulted
	preserve       bool               // unknown fields stay
	defaulted      bool               // the schema has defaults
	values, status *spec.Schema       // for objects, and for a status that is validated alone
	rules          *cel.Validator     // nil: the schema has no rules
	cost           *ValidationCost    // steps to validate objects
}

func (k *Kinds) newVersion(def *Definition, spec *apiextensionsv1.CustomResourceDefinitionVersion) *Version {
	v := &Version{kinds: k, name: spec.Name, apiVersion: def.Spec.Group + "/" + spec.Name, def: def, spec: spec}
	v.schemas = idlecache.New(k.clock, idle, v.compile)
	v.types = idlecache.New(k.clock, idle, v.newTypes)
	return v
}

func (v *Version) compiled() (*compiled, error) { return v.schemas.Get() }

func toInternal(schema *apiextensionsv1.JSONSchemaProps) (*apiextensions.JSONSchemaProps, error) {
	if schema == nil {
		return nil, nil
	}
	out := &apiextensions.JSONSchemaProps{}
	return out, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, out, nil)
}

func (v *Version) compile() (*compiled, error) {
	c := &compiled{preserve: v.def.Spec.PreserveUnknownFields}
	read, err := v.def.SchemaOf(v.spec)
	if err != nil {
		return nil, err
	}
	props, err := toInternal(read)
	if err != nil {
		return nil, err
	}
	if _, c.values, err = validation.NewSchemaValidator(props); err != nil {
		return nil, fmt.Errorf("schema of version %s: %w", v.name, err)
	}
	if props == nil {
		return c, nil
	}
	if status, ok := props.Properties["status"]; ok && v.hasStatus() {
		if _, c.status, err = validation.NewSchemaValidator(&status); err != nil {
			return nil, fmt.Errorf("status schema of version %s: %w", v.name, err)
		}
	}
	if c.structural, err = schema.NewStructural(props); err != nil {
		return nil, fmt.Errorf("schema of version %s: %w", v.name, err)
	}
	c.cost = ValidationCostOf(read)
	EachSchema(read, func(s *apiextensionsv1.JSONSchemaProps) { c.defaulted = c.defaulted || s.Default != nil })
	expressions.Base()
	c.rules = cel.NewValidator(c.structural, true, celconfig.PerCallLimit)
	return c, nil
}

func (v *Version) hasStatus() bool {
	return v.spec.Subresources != nil && v.spec.Subresources.Status != nil
}

func (v *Version) scale() *apiextensionsv1.CustomResourceSubresourceScale {
	if v.spec.Subresources == nil {
		return nil
	}
	return v.spec.Subresources.Scale
}

// normalize sets the defaults in a decoded object and removes unknown fields. It returns the metadata, which it removes
// from the object (nil: there is none), and the paths of the unknown fields. It calls admit with the memory of the
// defaults.
func (c *compiled) normalize(all map[string]any, admit func(bytes int) error) (*metav1.ObjectMeta, []string, error) {
	if c.defaulted {
		size, err := Defaults(all, c.structural)
		if err == nil && size > 0 {
			err = admit(size)
		}
		if err != nil {
			return nil, nil, err
		}
		defaulting.Default(all, c.structural)
	}
	return c.prune(all)
}

// prune is normalize without defaults.
func (c *compiled) prune(all map[string]any) (*metav1.ObjectMeta, []string, error) {
	meta, found, unknown,
		err := objectmeta.GetObjectMetaWithOptions(all, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		return nil, nil, err
	}
	if !found {
		meta = nil
	}
	if c.structural == nil {
		return meta, unknown, nil
	}
	if !c.preserve {
		unknown = append(unknown,
			pruning.PruneWithOptions(all, c.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(all, c.structural)
	}
	invalid, more := objectmeta.CoerceWithOptions(nil, all, c.structural, false,
		objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if invalid != nil {
		return nil, nil, invalid
	}
	return meta, append(unknown, more...), nil
}

// validate returns the errors of next by the schema, its rules and the scale. cur is the stored object, nil for a
// creation. subresource is "" or "status".
func (v *Version) validate(next, cur *Object, subresource string) field.ErrorList {
	errs, err := v.check(next, cur, subresource)
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	next.valid = len(errs) == 0
	return errs
}

func (v *Version) check(next, cur *Object, subresource string) (field.ErrorList, error) {
	c, err := v.compiled()
	if err != nil {
		return nil, err
	}
	is, err := next.current()
	next.content = nil // the stored object has no cache
	if err != nil {
		return nil, err
	}
	exceeds := c.exceeds(is, subresource)
	if exceeds != nil && (cur == nil || !next.EqualContent(cur)) {
		return field.ErrorList{exceeds}, nil
	}
	if cur == nil {
		errs := validation.ValidateCustomResource(nil, is, Validator(c.values))
		errs = append(errs, v.checkScale(is, true)...)
		errs = append(errs, objectmeta.Validate(context.Background(), nil, is, c.structural, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, c.structural, is)...)
		return c.checkRules(errs, is, nil), nil
	}
	was, err := cur.Content()
	if err != nil {
		return nil, err
	}
	return v.checkUpdate(c, is, was, subresource, exceeds != nil), nil
}

// exceeds returns an error if the validation of an object, or of its status, takes too many steps.
func (c *compiled) exceeds(is map[string]any, subresource string) *field.Error {
	switch {
	case c.cost == nil:
		return nil
	case subresource != "status":
		return c.cost.Exceeds(is, c.values, nil)
	case c.status == nil:
		return nil
	}
	return c.cost.Exceeds(is["status"], c.status, field.NewPath("status"))
}

// checkUpdate returns the errors of an update. unchanged reports that the content has not changed: then only the scale
// and the rules are checked.
func (v *Version) checkUpdate(c *compiled, is, was map[string]any, subresource string,
	unchanged bool) (errs field.ErrorList) {
	same := common.NewCorrelatedObject(is, was, &model.Structural{Structural: c.structural})
	if unchanged {
		return c.checkRules(v.checkScale(is, subresource != "status"), is, was, cel.WithRatcheting(same))
	}
	if subresource == "status" {
		if status, ok := is["status"]; ok {
			var options []validation.ValidationOption
			if c.structural != nil {
				options = append(options, validation.WithRatcheting(same.Key("status")))
			}
			errs = validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, was["status"], Validator(c.status),
				options...)
		}
		errs = append(errs, v.checkScale(is, false)...)
	} else {
		errs = validation.ValidateCustomResourceUpdate(nil, is, was, Validator(c.values), validation.WithRatcheting(same))
		errs = append(errs, v.checkScale(is, true)...)
		errs = append(errs, objectmeta.Validate(context.Background(), nil, is, c.structural, false)...)
	}
	if more := listtype.ValidateListSetsAndMaps(nil, c.structural, is); len(more) > 0 &&
		len(listtype.ValidateListSetsAndMaps(nil, c.structural, was)) == 0 {
		errs = append(errs, more...)
	}
	return c.checkRules(errs, is, was, cel.WithRatcheting(same))
}

// checkRules adds the errors of the schema's rules. It skips the rules if other errors could mislead them.
func (c *compiled) checkRules(errs field.ErrorList, is, was map[string]any, options ...cel.Option) field.ErrorList {
	if c.rules == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
			field.ErrorTypeTypeInvalid:
			return append(errs,
				field.Invalid(nil, nil,
					"some validation rules were not checked because the object was invalid; "+
						"correct the existing errors to complete validation"))
		}
	}
	var old any
	if was != nil {
		old = was
	}
	ctx, cancel := context.WithTimeout(context.Background(), RuleTime)
	defer cancel()
	more, _ := c.rules.Validate(ctx, nil, c.structural, is, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, more...)
}
