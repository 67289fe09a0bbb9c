package check

import (
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// LocalPath requires a path that is relative and does not lead upwards.
func LocalPath(value string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if filepath.IsAbs(value) {
		errs = append(errs, field.Invalid(path, value, "must be a relative path"))
	}
	return append(errs, NoBacksteps(value, path)...)
}

// NoBacksteps requires a path without "..".
func NoBacksteps(value string, path *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(filepath.ToSlash(value), "/"), "..") {
		return field.ErrorList{field.Invalid(path, value, "must not contain '..'")}
	}
	return nil
}

// FilePath requires a path in a volume. Names that begin with ".." are reserved for the atomic writer.
func FilePath(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := LocalPath(value, path)
	if len(errs) == 0 && strings.HasPrefix(value, "..") {
		errs = append(errs, field.Invalid(path, value, "must not start with '..'"))
	}
	return errs
}
