package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podOSValidate rejects fields that belong to another operating system than the pod's.
func podOSValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	if spec.OS == nil {
		return nil
	}
	switch spec.OS.Name {
	case corev1.Linux:
		return onlyWindows(spec, path)
	case corev1.Windows:
		return onlyLinux(spec, path)
	}
	return nil
}

func onlyWindows(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
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

func onlyLinux(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := forbidSet(path,
		map[string]bool{"hostPID": spec.HostPID, "hostIPC": spec.HostIPC, "hostUsers": spec.HostUsers != nil})
	at := path.Child("securityContext")
	errs = append(errs, forbidSet(at, map[string]bool{"shareProcessNamespace": spec.ShareProcessNamespace != nil})...)
	if s := spec.SecurityContext; s != nil {
		errs = append(errs, forbidSet(at, map[string]bool{
			"appArmorProfile": s.AppArmorProfile != nil, "seccompProfile": s.SeccompProfile != nil,
			"seLinuxOptions": s.SELinuxOptions != nil, "seLinuxChangePolicy": s.SELinuxChangePolicy != nil,
			"fsGroup": s.FSGroup != nil, "fsGroupChangePolicy": s.FSGroupChangePolicy != nil,
			"runAsUser": s.RunAsUser != nil, "runAsGroup": s.RunAsGroup != nil, "sysctls": len(s.Sysctls) > 0,
			"supplementalGroups":       s.SupplementalGroups != nil,
			"supplementalGroupsPolicy": s.SupplementalGroupsPolicy != nil,
		})...)
	}
	for at, s := range containerSecurities(spec, path) {
		errs = append(errs, forbidSet(at, map[string]bool{
			"appArmorProfile": s.AppArmorProfile != nil, "seccompProfile": s.SeccompProfile != nil,
			"seLinuxOptions": s.SELinuxOptions != nil, "capabilities": s.Capabilities != nil,
			"readOnlyRootFilesystem": s.ReadOnlyRootFilesystem != nil, "procMount": s.ProcMount != nil,
			"privileged": s.Privileged != nil, "allowPrivilegeEscalation": s.AllowPrivilegeEscalation != nil,
			"runAsUser": s.RunAsUser != nil, "runAsGroup": s.RunAsGroup != nil,
		})...)
	}
	return errs
}

// forbidSet returns an error for each field that is set.
func forbidSet(path *field.Path, set map[string]bool) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if set[name] {
			errs = append(errs, field.Forbidden(path.Child(name), "cannot be set for a windows pod"))
		}
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
		if !hasContainer(spec, name) {
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

func hasContainer(spec *corev1.PodSpec, name string) bool {
	for c := range Containers(spec) {
		if c.Name == name {
			return true
		}
	}
	return false
}
