package core

import (
	"bytes"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

func configMapResource() kind.Resource {
	return kind.Resource{
		GVR:        client.ConfigMaps,
		Kind:       "ConfigMap",
		Namespaced: true,
		ShortNames: []string{"cm"},
		New:        func() kind.Object { return new(corev1.ConfigMap) },
		Validate:   configMapValidate,
		Columns: []table.Column{
			table.Name(),
			table.Count("Data", "Number of keys.", func(c *corev1.ConfigMap) int { return len(c.Data) + len(c.BinaryData) }),
			table.Age(),
		},
	}
}

// configMapValidate checks the keys, and the total size of the values, which is limited to 1 MiB.
func configMapValidate(next, cur kind.Object, _ string) field.ErrorList {
	config := next.(*corev1.ConfigMap)
	var errs field.ErrorList
	size := 0
	for _, key := range slices.Sorted(maps.Keys(config.Data)) {
		errs = append(errs, configKey(field.NewPath("data"), key)...)
		if _, both := config.BinaryData[key]; both {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(config.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(config.BinaryData)) {
		errs = append(errs, configKey(field.NewPath("binaryData"), key)...)
		size += len(config.BinaryData[key])
	}
	if size > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	if cur == nil {
		return errs
	}
	old := cur.(*corev1.ConfigMap)
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	return slices.Concat(errs,
		immutableFieldErrors("immutable", config.Immutable != nil && *config.Immutable),
		immutableFieldErrors("data", maps.Equal(config.Data, old.Data)),
		immutableFieldErrors("binaryData", maps.EqualFunc(config.BinaryData, old.BinaryData, bytes.Equal)))
}

// configKey checks a key of a ConfigMap or Secret.
func configKey(path *field.Path, key string) field.ErrorList {
	return check.Invalid(path.Key(key), key, validation.IsConfigMapKey(key))
}

// immutableFieldErrors rejects a change of a field of an immutable ConfigMap or Secret.
func immutableFieldErrors(name string, unchanged bool) field.ErrorList {
	if unchanged {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set")}
}
