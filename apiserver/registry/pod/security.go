package pod

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// podSecurityValidate validates the pod's security context and its use of the host's namespaces.
func podSecurityValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	s, at := spec.SecurityContext, path.Child("securityContext")
	if spec.HostPID && spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace {
		errs = append(errs,
			field.Invalid(at.Child("shareProcessNamespace"), true, "ShareProcessNamespace and HostPID cannot both be enabled"))
	}
	if spec.HostUsers != nil && !*spec.HostUsers {
		errs = append(errs, check.Forbidden(at, "when `hostUsers` is false", []check.Field{
			{"hostNetwork", spec.HostNetwork}, {"hostPID", spec.HostPID}, {"hostIPC", spec.HostIPC}})...)
	}
	if s == nil {
		return errs
	}
	errs = append(errs, check.NilOrID(at.Child("runAsUser"), s.RunAsUser, validation.IsValidUserID)...)
	errs = append(errs, check.NilOrID(at.Child("runAsGroup"), s.RunAsGroup, validation.IsValidGroupID)...)
	errs = append(errs, check.NilOrID(at.Child("fsGroup"), s.FSGroup, validation.IsValidGroupID)...)
	for i, gid := range s.SupplementalGroups {
		errs = append(errs, check.Invalid(at.Child("supplementalGroups").Index(i), gid, validation.IsValidGroupID(gid))...)
	}
	return slices.Concat(errs,
		check.NilOr(at.Child("supplementalGroupsPolicy"), s.SupplementalGroupsPolicy, corev1.SupplementalGroupsPolicyMerge,
			corev1.SupplementalGroupsPolicyStrict),
		check.NilOr(at.Child("fsGroupChangePolicy"), s.FSGroupChangePolicy, corev1.FSGroupChangeAlways,
			corev1.FSGroupChangeOnRootMismatch),
		check.NilOr(at.Child("seLinuxChangePolicy"), s.SELinuxChangePolicy, corev1.SELinuxChangePolicyRecursive,
			corev1.SELinuxChangePolicyMountOption),
		sysctlsValidate(spec, s.Sysctls, at.Child("sysctls")),
		seccompValidate(s.SeccompProfile, at.Child("seccompProfile")),
		appArmorValidate(s.AppArmorProfile, at.Child("appArmorProfile")))
}

// sysctlName is upstream's pattern: segments separated by dots or slashes.
const sysctlName = `^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`

// maxSysctlName is upstream's SysctlMaxLength.
const maxSysctlName = 253

func sysctlsValidate(spec *corev1.PodSpec, sysctls []corev1.Sysctl, path *field.Path) field.ErrorList {
	if len(sysctls) == 0 {
		return nil
	}
	var errs field.ErrorList
	seen := map[string]bool{}
	pattern := regexp.MustCompile(sysctlName)
	for i, s := range sysctls {
		at := path.Index(i).Child("name")
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch valid := pattern.MatchString(s.Name); {
		case s.Name == "":
			errs = append(errs, field.Required(at, ""))
		case !valid || len(s.Name) > maxSysctlName:
			errs = append(errs, field.Invalid(at, s.Name,
				fmt.Sprintf("must have at most %d characters and match regex %s", maxSysctlName, sysctlName)))
		case seen[name]:
			errs = append(errs, field.Duplicate(at, s.Name))
		case spec.HostNetwork && strings.HasPrefix(name, "net."):
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostNetwork' is true"))
		case spec.HostIPC && sysctlIPC(name):
			errs = append(errs, field.Invalid(at, s.Name, "may not be specified when 'hostIPC' is true"))
		}
		seen[name] = true
	}
	return errs
}

// sysctlIPC reports whether the sysctl belongs to the IPC namespace.
func sysctlIPC(name string) bool {
	return name == "kernel.sem" || strings.HasPrefix(name, "kernel.shm") ||
		strings.HasPrefix(name, "kernel.msg") || strings.HasPrefix(name, "fs.mqueue.")
}

func seccompValidate(p *corev1.SeccompProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := check.OneOf(path.Child("type"), p.Type, corev1.SeccompProfileTypeLocalhost,
		corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)
	return append(errs,
		localhostProfile(p.LocalhostProfile, p.Type == corev1.SeccompProfileTypeLocalhost, path.Child("localhostProfile"))...)
}

func appArmorValidate(p *corev1.AppArmorProfile, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := check.OneOf(path.Child("type"), p.Type, corev1.AppArmorProfileTypeLocalhost,
		corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined)
	return append(errs, localhostProfile(p.LocalhostProfile, p.Type == corev1.AppArmorProfileTypeLocalhost,
		path.Child("localhostProfile"))...)
}

// localhostProfile requires the path of a file on the node if the type is Localhost, and none otherwise.
func localhostProfile(profile *string, wanted bool, path *field.Path) field.ErrorList {
	switch {
	case wanted && (profile == nil || *profile == ""):
		return field.ErrorList{field.Required(path, "must be set when type is Localhost")}
	case wanted:
		return check.LocalPath(*profile, path)
	case profile != nil:
		return field.ErrorList{field.Invalid(path, *profile, "can only be set when type is Localhost")}
	}
	return nil
}

// containerSecurityValidate validates one container's security context.
func containerSecurityValidate(spec *corev1.PodSpec, s *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	errs := check.NilOrID(path.Child("runAsUser"), s.RunAsUser, validation.IsValidUserID)
	errs = append(errs, check.NilOrID(path.Child("runAsGroup"), s.RunAsGroup, validation.IsValidGroupID)...)
	errs = append(errs, seccompValidate(s.SeccompProfile, path.Child("seccompProfile"))...)
	errs = append(errs, appArmorValidate(s.AppArmorProfile, path.Child("appArmorProfile"))...)
	errs = append(errs,
		check.NilOr(path.Child("procMount"), s.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
	if s.ProcMount != nil && *s.ProcMount == corev1.UnmaskedProcMount && (spec.HostUsers == nil || *spec.HostUsers) {
		errs = append(errs,
			field.Invalid(path.Child("procMount"), *s.ProcMount, "`hostUsers` must be false to use `Unmasked`"))
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return errs
	}
	if isPrivileged(s) {
		errs = append(errs, field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "CAP_SYS_ADMIN") {
		errs = append(errs,
			field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
	}
	return errs
}

func isPrivileged(s *corev1.SecurityContext) bool {
	return s != nil && s.Privileged != nil && *s.Privileged
}
