package custom

import (
	"context"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/crd"
	"monopod/apiserver/registry/expressions"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// Resources returns the kind CustomResourceDefinition.
func Resources() []kind.Resource {
	return []kind.Resource{{
		GVR:        client.CustomResourceDefinitions,
		Kind:       "CustomResourceDefinition",
		ShortNames: []string{"crd", "crds"},
		Categories: []string{"api-extensions"},
		Qualified:  true,
		New:        func() kind.Object { return new(crd.Definition) },
		Default: func(obj kind.Object) {
			apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&obj.(*crd.Definition).CustomResourceDefinition)
		},
		Prepare:  prepare,
		Validate: Validate,
		// The deletion first adds a finalizer, which remains until all objects of the kind are deleted.
		BlocksDeletion: func(obj kind.Object) bool { return obj.GetDeletionTimestamp() == nil },
		Subresources:   kind.Parts("status"),
		Columns:        []table.Column{table.Name(), table.CreatedAt()},
	}}
}

func prepare(next, cur kind.Object, subresource string) {
	is, was := next.(*crd.Definition), (*crd.Definition)(nil)
	if cur != nil {
		was = cur.(*crd.Definition)
	}
	switch {
	case was == nil:
		// an empty list, not null, because kubectl wait reports null as an error
		is.Status = apiextensionsv1.CustomResourceDefinitionStatus{
			Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{}}
		is.Generation = 1
		addStoredVersion(is)
	case subresource == "delete":
		if was.DeletionTimestamp != nil {
			return
		}
		// the finalizer remains until all objects are deleted
		if !slices.Contains(is.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
			is.Finalizers = append(is.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer)
		}
		apihelpers.SetCRDCondition(&is.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: "InstanceDeletionPending",
			Message: "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
		})
	case subresource == "status":
		is.KeepSpec(was)
	default:
		is.Status = *was.Status.DeepCopy()
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&is.CustomResourceDefinition)
		if !sameSpec(is, was) {
			is.Generation = was.Generation + 1
		}
		addStoredVersion(is)
	}
}

// sameSpec reports whether both definitions have the same spec, including the schemas.
func sameSpec(a, b *crd.Definition) bool {
	if a.SharesSchemas(b) {
		return equality.Semantic.DeepEqual(a.Spec, b.Spec)
	}
	is, err := a.Full()
	was, err2 := b.Full()
	return err == nil && err2 == nil && equality.Semantic.DeepEqual(is.Spec, was.Spec)
}

// addStoredVersion adds the storage version to status.storedVersions.
func addStoredVersion(def *crd.Definition) {
	for _, v := range def.Spec.Versions {
		if v.Storage && !slices.Contains(def.Status.StoredVersions, v.Name) {
			def.Status.StoredVersions = append(def.Status.StoredVersions, v.Name)
		}
	}
}

// validationTime is the time limit for the validation of one definition, which compiles its rules.
const validationTime = 30 * time.Second

// Validate returns the errors of a definition. It rejects a schema that is too large or too deep before it compiles the
// rules.
func Validate(next, cur kind.Object, subresource string) field.ErrorList {
	ctx, cancel := context.WithTimeout(context.Background(), validationTime)
	defer cancel()
	full := (*crd.Definition).Full
	if subresource == "status" { // the schemas are not checked
		full = withoutSchemas
	}
	def, err := full(next.(*crd.Definition))
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	if errs := CheckCost(&def.Spec); errs != nil && (cur == nil || subresource == "") {
		return errs // compile nothing
	}
	expressions.Base()
	is, err := internalDefinition(def)
	if err != nil {
		return field.ErrorList{field.Invalid(field.NewPath("spec"), nil, err.Error())}
	}
	if cur == nil {
		return withoutMetadataErrors(validation.ValidateCustomResourceDefinition(ctx, is), is, nil)
	}
	if def, err = full(cur.(*crd.Definition)); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	was, err := internalDefinition(def)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(nil, err)}
	case subresource == "status":
		return withoutMetadataErrors(validation.ValidateUpdateCustomResourceDefinitionStatus(ctx, is, was), is, was)
	}
	return withoutMetadataErrors(validation.ValidateCustomResourceDefinitionUpdate(ctx, is, was), is, was)
}

// withoutSchemas returns a copy of a definition without its schemas.
func withoutSchemas(d *crd.Definition) (*apiextensionsv1.CustomResourceDefinition, error) {
	def := d.CustomResourceDefinition
	def.Spec.Versions = slices.Clone(def.Spec.Versions)
	for i := range def.Spec.Versions {
		def.Spec.Versions[i].Schema = nil
	}
	return def.DeepCopy(), nil
}

// internalDefinition converts a definition to the internal type that upstream's validation takes. The caller must not
// use the definition afterwards.
func internalDefinition(
	def *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	out := &apiextensions.CustomResourceDefinition{}
	return out, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(def, out,
		nil)
}

// withoutMetadataErrors returns errs without the errors about metadata, which the registry reports for all kinds. was
// is nil for a creation.
func withoutMetadataErrors(errs field.ErrorList, is, was *apiextensions.CustomResourceDefinition) field.ErrorList {
	at := field.NewPath("metadata")
	common := apivalidation.ValidateObjectMeta(&is.ObjectMeta, false, apivalidation.NameIsDNSSubdomain, at)
	if was != nil {
		common = append(common, apivalidation.ValidateObjectMetaUpdate(&is.ObjectMeta, &was.ObjectMeta, at)...)
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return slices.ContainsFunc(common, func(c *field.Error) bool { return c.Error() == e.Error() })
	})
}
