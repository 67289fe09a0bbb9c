package pod

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	helpers "k8s.io/component-helpers/resource"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/volume"
)

// AnnotationErrors validates the annotations of a pod or a template that the control plane uses.
func AnnotationErrors(annotations map[string]string, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && spec.NodeName == "" {
		errs = append(errs,
			field.Invalid(path.Key(corev1.MirrorPodAnnotationKey), "", "must set spec.nodeName if mirror pod annotation is set"))
	}
	errs = append(errs, appArmorAnnotations(annotations, spec, path)...)
	cost, ok := annotations[corev1.PodDeletionCost]
	if !ok {
		return errs
	}
	if n, err := strconv.ParseInt(cost, 10, 32); err != nil || strconv.FormatInt(n, 10) != cost {
		errs = append(errs, field.Invalid(path.Key(corev1.PodDeletionCost), cost, "must be a 32bit integer"))
	}
	return errs
}

// Validate validates the spec of a pod or a template, which must have its defaults.
func Validate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	return slices.Concat(
		volume.All().Validate(spec.Volumes, path.Child("volumes")),
		containersValidate(spec, path),
		podLifeValidate(spec, path),
		podIdentityValidate(spec, path),
		podDNSValidate(spec, path),
		podSecurityValidate(spec, path),
		podOSValidate(spec, path),
		podSchedulingValidate(spec, path),
		podResourcesValidate(spec, path),
	)
}

// podLifeValidate validates the fields that limit the time that the pod runs.
func podLifeValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := check.OneOf(path.Child("restartPolicy"), spec.RestartPolicy,
		corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)
	if s := spec.ActiveDeadlineSeconds; s != nil && (*s < 1 || *s > math.MaxInt32) {
		errs = append(errs,
			field.Invalid(path.Child("activeDeadlineSeconds"), *s, validation.InclusiveRangeError(1, math.MaxInt32)))
	}
	gates := map[corev1.PodConditionType]bool{}
	for i, g := range spec.ReadinessGates {
		at := path.Child("readinessGates").Index(i).Child("conditionType")
		errs = append(errs, check.Invalid(at, g.ConditionType, validation.IsQualifiedName(string(g.ConditionType)))...)
		errs = append(errs, check.Unique(at, g.ConditionType, gates)...)
	}
	return errs
}

// podIdentityValidate validates the pod's host name and DNS settings, and the names of other objects.
func podIdentityValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := slices.Concat(
		check.UnsetOrNamed(path.Child("serviceAccountName"), spec.ServiceAccountName, check.Subdomain),
		check.UnsetOrNamed(path.Child("nodeName"), spec.NodeName, check.Subdomain),
		check.UnsetOrNamed(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label),
		check.UnsetOrNamed(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label),
		check.UnsetOrNamed(path.Child("priorityClassName"), spec.PriorityClassName, check.Subdomain),
		check.NilOrNamed(path.Child("runtimeClassName"), spec.RuntimeClassName, check.Subdomain))
	if spec.OS != nil {
		errs = append(errs, check.Required(path.Child("os", "name"), string(spec.OS.Name))...)
		errs = append(errs, check.UnsetOr(path.Child("os"), spec.OS.Name, corev1.Linux, corev1.Windows)...)
	}
	name, at := spec.HostnameOverride, path.Child("hostnameOverride")
	if name == nil {
		return errs
	}
	errs = append(errs, check.Invalid(at, *name, check.Subdomain(*name))...)
	if len(*name) > 64 {
		errs = append(errs, field.TooLong(at, *name, 64))
	}
	if spec.HostNetwork {
		errs = append(errs, field.Forbidden(at, "may not be specified when hostNetwork is true"))
	}
	if spec.SetHostnameAsFQDN != nil && *spec.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(at, "may not be specified when setHostnameAsFQDN is true"))
	}
	return errs
}

// Upstream's limits for resolv.conf (pkg/apis/core/validation).
const (
	maxNameservers     = 3
	maxSearches        = 32
	maxSearchesLetters = 2048
)

func podDNSValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	errs := check.OneOf(path.Child("dnsPolicy"), spec.DNSPolicy,
		corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet, corev1.DNSDefault, corev1.DNSNone)
	config, at := spec.DNSConfig, path.Child("dnsConfig")
	if spec.DNSPolicy == corev1.DNSNone && config == nil {
		errs = append(errs,
			field.Required(at, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", corev1.DNSNone)))
	}
	if config != nil {
		if spec.DNSPolicy == corev1.DNSNone && len(config.Nameservers) == 0 {
			errs = append(errs, field.Required(at.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone)))
		}
		errs = append(errs, dnsConfigValidate(config, at)...)
	}
	for i, alias := range spec.HostAliases {
		at := path.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIP(at.Child("ip"), alias.IP)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, check.Invalid(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name))...)
		}
	}
	return errs
}

func dnsConfigValidate(config *corev1.PodDNSConfig, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(config.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), config.Nameservers,
			fmt.Sprintf("must not have more than %d nameservers", maxNameservers)))
	}
	for i, ip := range config.Nameservers {
		errs = append(errs, validation.IsValidIP(path.Child("nameservers").Index(i), ip)...)
	}
	if len(config.Searches) > maxSearches {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches,
			fmt.Sprintf("must not have more than %d search paths", maxSearches)))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchesLetters {
		errs = append(errs, field.Invalid(path.Child("searches"), config.Searches,
			fmt.Sprintf("must not have more than %d characters (including spaces) in the search list", maxSearchesLetters)))
	}
	for i, search := range config.Searches {
		trimmed := strings.TrimSuffix(search, ".")
		if search != "." {
			errs = append(errs,
				check.Invalid(path.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(trimmed))...)
		}
	}
	for i, option := range config.Options {
		errs = append(errs, check.Required(path.Child("options").Index(i), option.Name)...)
	}
	return errs
}

// podResourcesValidate validates the resources and claims of the pod itself.
func podResourcesValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	claims := map[string]bool{}
	for i, c := range spec.ResourceClaims {
		at := path.Child("resourceClaims").Index(i)
		errs = append(errs, check.Named(at.Child("name"), c.Name, validation.IsDNS1123Label)...)
		errs = append(errs, check.Unique(at.Child("name"), c.Name, claims)...)
		if (c.ResourceClaimName == nil) == (c.ResourceClaimTemplateName == nil) {
			errs = append(errs, field.Invalid(at, c, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		}
	}
	for c, at := range ContainersAt(spec, path) {
		errs = append(errs, resourcesValidate(&c.Resources, claims, at.Child("resources"))...)
	}
	if r, at := spec.Resources, path.Child("resources"); r != nil { // only cpu, memory and huge pages
		supported := func(at *field.Path, name corev1.ResourceName) field.ErrorList {
			if helpers.IsSupportedPodLevelResource(name) {
				return nil
			}
			return field.ErrorList{field.NotSupported(at, name, slices.Sorted(maps.Keys(helpers.SupportedPodLevelResources())))}
		}
		errs = slices.Concat(errs, amountsValidate(r.Limits, supported, at.Child("limits")),
			amountsValidate(r.Requests, supported, at.Child("requests")), requestsWithinLimits(r, at))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Overhead)) {
		at := path.Child("overhead").Key(string(name))
		errs = append(errs, check.ContainerResourceName(at, name)...)
		errs = append(errs, check.Amount(at, name, spec.Overhead[name])...)
	}
	return errs
}
