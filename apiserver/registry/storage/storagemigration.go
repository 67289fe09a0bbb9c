package storage

import (
	"slices"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// migration is a StorageVersionMigration, which the controller storageversionmigrator processes.
type migration = migrationv1.StorageVersionMigration

func storageVersionMigrationResource() kind.Resource {
	return kind.Resource{
		GVR:          client.StorageVersionMigrations,
		Kind:         "StorageVersionMigration",
		Controller:   "storage-version-migrator-controller",
		Subresources: kind.Parts("status"),
		New:          func() kind.Object { return new(migration) },
		Prepare: kind.SpecAndStatus(
			func(obj kind.Object) (*migrationv1.StorageVersionMigrationSpec, *migrationv1.StorageVersionMigrationStatus) {
				m := obj.(*migration)
				return &m.Spec, &m.Status
			}, nil),
		Validate: validateMigration,
		Columns: []table.Column{
			table.Name(),
			table.Text("GVR", "The resource whose objects are rewritten.",
				func(m *migration) string { return m.Spec.Resource.String() }),
			table.Age(),
		},
	}
}

func validateMigration(next, cur kind.Object, subresource string) (errs field.ErrorList) {
	m, at := next.(*migration), field.NewPath("spec", "resource")
	if subresource == "status" {
		return statusErrors(m, cur.(*migration))
	}
	errs = append(errs, check.UnsetOrNamed(at.Child("group"), m.Spec.Resource.Group, validation.IsDNS1123Subdomain)...)
	if m.Spec.Resource.Resource == "" {
		errs = append(errs, field.Required(at.Child("resource"), "resource is required"))
	} else {
		errs = append(errs, check.Invalid(at.Child("resource"), m.Spec.Resource.Resource,
			validation.IsDNS1035Label(m.Spec.Resource.Resource))...)
	}
	if cur != nil {
		errs = append(errs, check.Immutable(field.NewPath("spec"), m.Spec, cur.(*migration).Spec)...)
	}
	return errs
}

// statusErrors rejects changes of final conditions: a migration ends once, with success or failure.
func statusErrors(m, old *migration) (errs field.ErrorList) {
	at := field.NewPath("status", "conditions")
	errs = append(errs, metavalidation.ValidateConditions(m.Status.Conditions, at)...)
	is := func(m *migration, typ migrationv1.MigrationConditionType) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(typ))
	}
	ended := []migrationv1.MigrationConditionType{migrationv1.MigrationSucceeded, migrationv1.MigrationFailed}
	if is(m, ended[0]) && is(m, ended[1]) {
		errs = append(errs,
			field.Invalid(at, m.Status.Conditions, "Both success and failed conditions cannot be true at the same time"))
	}
	if is(m, migrationv1.MigrationRunning) &&
		slices.ContainsFunc(ended, func(typ migrationv1.MigrationConditionType) bool { return is(m, typ) }) {
		errs = append(errs,
			field.Invalid(at, m.Status.Conditions, "Running condition cannot be true when success or failed condition is true"))
	}
	for _, typ := range ended {
		if is(old, typ) && !is(m, typ) {
			errs = append(errs,
				field.Invalid(at, m.Status.Conditions, string(typ)+" condition cannot be set to false once it is true"))
		}
	}
	if was, is := old.Status.ResourceVersion, m.Status.ResourceVersion; was != "" && was != is {
		errs = append(errs, field.Invalid(field.NewPath("status", "resourceVersion"), is, "field is immutable"))
	}
	return errs
}
