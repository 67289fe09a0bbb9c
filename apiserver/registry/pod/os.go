package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// podOSValidate rejects fields that belong to another operating system than the pod's.
func podOSValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.OS == nil || spec.OS.Name != corev1.Linux && spec.OS.Name != corev1.Windows {
		return nil
	}
	if spec.OS.Name == corev1.Windows {
		return onlyLinux(spec, path)
	}
	var errs field.ErrorList
	const detail = "windows options cannot be set for a linux pod"
	if s := spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(path.Child("securityContext", "windowsOptions"), detail))
	}
	for at, s := range containerSecurities(spec, path) {
		if s.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("windowsOptions"), detail))
		}
	}
	return errs
}

// containerSecurities iterates over the security contexts of all containers with their paths.
func containerSecurities(spec *corev1.PodSpec,
	path *field.Path) func(yield func(*field.Path, *corev1.SecurityContext) bool) {
	return func(yield func(*field.Path, *corev1.SecurityContext) bool) {
		for _, list := range []struct {
			name       string
			containers []corev1.Container
		}{{"containers", spec.Containers}, {"initContainers", spec.InitContainers}} {
			for i := range list.containers {
				s := list.containers[i].SecurityContext
				if s != nil && !yield(path.Child(list.name).Index(i).Child("securityContext"), s) {
					return
				}
			}
		}
	}
}

// onlyLinux rejects the fields that only pods for Linux have.
func onlyLinux(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	const detail = "cannot be set for a windows pod"
	errs := check.Forbidden(path, detail, []check.Field{
		{"hostIPC", spec.HostIPC}, {"hostPID", spec.HostPID}, {"hostUsers", spec.HostUsers != nil}})
	at := path.Child("securityContext")
	if spec.ShareProcessNamespace != nil {
		errs = append(errs, field.Forbidden(at.Child("shareProcessNamespace"), detail))
	}
	if s := spec.SecurityContext; s != nil {
		errs = append(errs, check.Forbidden(at, detail, []check.Field{
			{"appArmorProfile", s.AppArmorProfile != nil}, {"fsGroup", s.FSGroup != nil},
			{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, {"runAsGroup", s.RunAsGroup != nil},
			{"runAsUser", s.RunAsUser != nil}, {"seLinuxChangePolicy", s.SELinuxChangePolicy != nil},
			{"seLinuxOptions", s.SELinuxOptions != nil}, {"seccompProfile", s.SeccompProfile != nil},
			{"supplementalGroups", s.SupplementalGroups != nil},
			{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil}, {"sysctls", len(s.Sysctls) > 0}})...)
	}
	for at, s := range containerSecurities(spec, path) {
		errs = append(errs, check.Forbidden(at, detail, []check.Field{
			{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, {"appArmorProfile", s.AppArmorProfile != nil},
			{"capabilities", s.Capabilities != nil}, {"privileged", s.Privileged != nil},
			{"procMount", s.ProcMount != nil}, {"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil},
			{"runAsGroup", s.RunAsGroup != nil}, {"runAsUser", s.RunAsUser != nil},
			{"seLinuxOptions", s.SELinuxOptions != nil}, {"seccompProfile", s.SeccompProfile != nil}})...)
	}
	return errs
}

// appArmorAnnotations validates the annotations that the field appArmorProfile has replaced.
func appArmorAnnotations(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		found := false
		for c := range Containers(spec) {
			found = found || c.Name == name
		}
		if !found {
			errs = append(errs, field.Invalid(path.Key(key), name, "container not found"))
		}
		switch p := annotations[key]; {
		case p == "", p == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault,
			p == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		case len(p) > len(corev1.DeprecatedAppArmorBetaProfileNamePrefix) &&
			strings.HasPrefix(p, corev1.DeprecatedAppArmorBetaProfileNamePrefix):
		default:
			errs = append(errs, field.Invalid(path.Key(key), p, fmt.Sprintf("invalid AppArmor profile name: %q", p)))
		}
	}
	return errs
}
