package volume

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

func configMapDefault(v *corev1.VolumeSource) { modeDefault(&v.ConfigMap.DefaultMode) }

func configMapErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(at.Child("name"), v.ConfigMap.Name),
		filesErrors(v.ConfigMap.DefaultMode, v.ConfigMap.Items, at)...)
}

func configMapWarnings(v *corev1.Volume, _ *field.Path) []string {
	var o overlaps
	o.add(itemPaths(v.ConfigMap.Items), source{v.Name, "ConfigMap", v.ConfigMap.Name})
	return o.lines
}

func configMapReferences(_ *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	add("configmaps", v.ConfigMap.Name)
}

func secretDefault(v *corev1.VolumeSource) { modeDefault(&v.Secret.DefaultMode) }

func secretErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(at.Child("secretName"), v.Secret.SecretName),
		filesErrors(v.Secret.DefaultMode, v.Secret.Items, at)...)
}

func secretWarnings(v *corev1.Volume, _ *field.Path) []string {
	var o overlaps
	o.add(itemPaths(v.Secret.Items), source{v.Name, "Secret", v.Secret.SecretName})
	return o.lines
}

func secretReferences(_ *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	add("secrets", v.Secret.SecretName)
}

func downwardAPIDefault(v *corev1.VolumeSource) {
	modeDefault(&v.DownwardAPI.DefaultMode)
	downwardDefault(v.DownwardAPI.Items)
}

func downwardAPIErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	return append(modeErrors(v.DownwardAPI.DefaultMode, at.Child("defaultMode")),
		downwardErrors(v.DownwardAPI.Items, at.Child("items"))...)
}

func downwardAPIWarnings(v *corev1.Volume, _ *field.Path) []string {
	var o overlaps
	o.add(downwardPaths(v.DownwardAPI.Items), source{volume: v.Name, kind: "DownwardAPI"})
	return o.lines
}

func downwardDefault(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		FieldRefDefault(items[i].FieldRef)
	}
}

// FieldRefDefault sets the version of a field path, in a volume or an environment.
func FieldRefDefault(ref *corev1.ObjectFieldSelector) {
	if ref != nil && ref.APIVersion == "" {
		ref.APIVersion = "v1"
	}
}

// volumeFields are the fields that fieldRef supports in a volume.
func volumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

func downwardErrors(items []corev1.DownwardAPIVolumeFile, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range items {
		item, at := &items[i], path.Index(i)
		errs = append(errs, check.FilePath(item.Path, at.Child("path"))...)
		errs = append(errs, modeErrors(item.Mode, at.Child("mode"))...)
		switch {
		case item.FieldRef != nil && item.ResourceFieldRef != nil:
			errs = append(errs,
				field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		case item.FieldRef != nil:
			errs = append(errs, check.FieldRef(item.FieldRef, volumeFields(), at.Child("fieldRef"))...)
		case item.ResourceFieldRef != nil:
			errs = append(errs,
				check.Required(at.Child("resourceFieldRef", "containerName"), item.ResourceFieldRef.ContainerName)...)
			errs = append(errs, check.ResourceField(item.ResourceFieldRef, at.Child("resourceFieldRef"))...)
		default:
			errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
		}
	}
	return errs
}

// modeDefault sets the mode of files that come from the API.
func modeDefault(mode **int32) {
	if *mode == nil {
		*mode = new(corev1.ConfigMapVolumeSourceDefaultMode) // the same for all types
	}
}

func modeErrors(mode *int32, path *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
}

// filesErrors returns the errors of the paths of an object's keys.
func filesErrors(mode *int32, items []corev1.KeyToPath, path *field.Path) field.ErrorList {
	errs := modeErrors(mode, path.Child("defaultMode"))
	for i := range items {
		at := path.Child("items").Index(i)
		errs = append(errs, check.Required(at.Child("key"), items[i].Key)...)
		errs = append(errs, check.FilePath(items[i].Path, at.Child("path"))...)
		errs = append(errs, modeErrors(items[i].Mode, at.Child("mode"))...)
	}
	return errs
}

func itemPaths(items []corev1.KeyToPath) []string {
	var paths []string
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}

func downwardPaths(items []corev1.DownwardAPIVolumeFile) []string {
	var paths []string
	for i := range items {
		paths = append(paths, items[i].Path)
	}
	return paths
}

// overlaps warns about files of one volume that overwrite each other.
type overlaps struct {
	paths []string // so far
	lines []string
}

// source is what a volume's files come from.
type source struct {
	volume, kind string
	object       string // empty: not from an object
}

func (s source) String() string {
	if s.object == "" {
		return fmt.Sprintf("volume %q (%s)", s.volume, s.kind)
	}
	return fmt.Sprintf("volume %q (%s %q)", s.volume, s.kind, s.object)
}

// add compares paths of a source with each other and with the earlier paths.
func (o *overlaps) add(paths []string, of source) {
	for _, path := range paths {
		path = strings.TrimRight(path, "/")
		i := slices.IndexFunc(o.paths, func(other string) bool { return within(path, other) || within(other, path) })
		if i >= 0 {
			o.lines = append(o.lines, fmt.Sprintf("%s: overlapping paths: %q with %q", of, path, o.paths[i]))
		}
		o.paths = append(o.paths, path)
	}
}

// within reports whether path is dir or in it.
func within(path, dir string) bool {
	return path != "" && dir != "" && strings.HasPrefix(path+"/", dir+"/")
}
