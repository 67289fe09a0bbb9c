package pod

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// ContainersAt iterates over all containers of a spec with their paths.
func ContainersAt(spec *corev1.PodSpec, path *field.Path) iter.Seq2[*corev1.Container, *field.Path] {
	return func(yield func(*corev1.Container, *field.Path) bool) {
		lists := []string{"initContainers", "containers", "ephemeralContainers"}
		ends := []int{len(spec.InitContainers), len(spec.Containers), len(spec.EphemeralContainers)}
		list, i := 0, 0
		for c := range Containers(spec) {
			for i == ends[list] {
				list, i = list+1, 0
			}
			if !yield(c, path.Child(lists[list]).Index(i)) {
				return
			}
			i++
		}
	}
}

func containersValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	volumes := map[string]*corev1.Volume{}
	for i := range spec.Volumes {
		volumes[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	for c, at := range ContainersAt(spec, path) {
		errs = append(errs, containerValidate(spec, c, volumes, at)...)
	}
	errs = append(errs, containerNames(spec, path)...)
	// Host ports are unique among containers that run at the same time. Init containers end before the others start.
	for i := range spec.InitContainers {
		errs = append(errs,
			hostPortsOf(spec, &spec.InitContainers[i], map[string]bool{}, path.Child("initContainers").Index(i))...)
	}
	taken := map[string]bool{}
	for i := range spec.Containers {
		errs = append(errs, hostPortsOf(spec, &spec.Containers[i], taken, path.Child("containers").Index(i))...)
	}
	errs = append(errs, ephemeralValidate(spec, path.Child("ephemeralContainers"))...)
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; !IsSidecar(c) {
			errs = append(errs, check.Forbidden(path.Child("initContainers").Index(i),
				"may not be set for init containers without restartPolicy=Always",
				[]check.Field{{"lifecycle", c.Lifecycle != nil}, {"livenessProbe", c.LivenessProbe != nil},
					{"readinessProbe", c.ReadinessProbe != nil}, {"startupProbe", c.StartupProbe != nil}})...)
		}
	}
	return errs
}

// containerNames requires unique names. For a duplicate among init and main containers, the error is about the init
// container.
func containerNames(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	first := map[string]*corev1.Container{}
	for i := range spec.Containers {
		if c := &spec.Containers[i]; first[c.Name] == nil {
			first[c.Name] = c
		}
	}
	for c, at := range ContainersAt(spec, path) {
		if first[c.Name] == nil {
			first[c.Name] = c
		}
		if c.Name != "" && first[c.Name] != c {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
	}
	return errs
}

// containerValidate validates the fields that all kinds of containers have.
func containerValidate(spec *corev1.PodSpec, c *corev1.Container, volumes map[string]*corev1.Volume,
	path *field.Path) field.ErrorList {
	errs := append(check.Named(path.Child("name"), c.Name, validation.IsDNS1123Label),
		check.Required(path.Child("image"), c.Image)...)
	if strings.TrimSpace(c.Image) != c.Image {
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	return slices.Concat(errs,
		portsValidate(c.Ports, path.Child("ports")),
		envValidate(c.Env, volumes, path.Child("env")),
		envFromValidate(c.EnvFrom, path.Child("envFrom")),
		mountsValidate(c, volumes, path),
		probesValidate(c, path),
		lifecycleValidate(spec, c.Lifecycle, path.Child("lifecycle")),
		check.OneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, corev1.TerminationMessageReadFile,
			corev1.TerminationMessageFallbackToLogsOnError),
		check.OneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
			corev1.PullNever),
		resizeValidate(c.ResizePolicy, path.Child("resizePolicy")),
		restartValidate(c, path),
		containerSecurityValidate(spec, c.SecurityContext, path.Child("securityContext")))
}

func resizeValidate(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		errs = append(errs,
			check.OneOf(path.Index(i).Child("resourceName"), p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs,
			check.OneOf(path.Index(i).Child("restartPolicy"), p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		errs = append(errs, check.Unique(path.Index(i), p.ResourceName, seen)...)
	}
	return errs
}

// maxRestartRules and maxRuleCodes are upstream's limits for restartPolicyRules.
const (
	maxRestartRules = 20
	maxRuleCodes    = 255
)

func restartValidate(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := check.NilOr(path.Child("restartPolicy"), c.RestartPolicy,
		corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)
	if len(c.RestartPolicyRules) > 0 && c.RestartPolicy == nil {
		errs = append(errs,
			field.Required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used"))
	}
	at := path.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) > maxRestartRules {
		errs = append(errs, field.TooMany(at, len(c.RestartPolicyRules), maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		rule, on := &c.RestartPolicyRules[i], at.Index(i)
		errs = append(errs, check.OneOf(on.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers)...)
		switch codes, exit := rule.ExitCodes, on.Child("exitCodes"); {
		case codes == nil:
			errs = append(errs, field.Required(exit, ""))
		case len(codes.Values) > maxRuleCodes:
			errs = append(errs, field.TooMany(exit.Child("values"), len(codes.Values), maxRuleCodes))
		default:
			errs = append(errs, check.OneOf(exit.Child("operator"), codes.Operator,
				corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		}
	}
	return errs
}

func portsValidate(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		errs = append(errs, check.UnsetOrNamed(at.Child("name"), p.Name, validation.IsValidPortName)...)
		if p.Name != "" && names[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		names[p.Name] = true
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, check.Port(at.Child("containerPort"), p.ContainerPort)...)
		}
		if p.HostPort != 0 {
			errs = append(errs, check.Port(at.Child("hostPort"), p.HostPort)...)
		}
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIP(at.Child("hostIP"), p.HostIP)...)
		}
		errs = append(errs,
			check.OneOf(at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
	}
	return errs
}

func hostPortsOf(spec *corev1.PodSpec, c *corev1.Container, taken map[string]bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, p := range c.Ports {
		at := path.Child("ports").Index(i)
		if p.HostPort == 0 {
			continue
		}
		if spec.HostNetwork && p.HostPort != p.ContainerPort {
			errs = append(errs,
				field.Invalid(at.Child("containerPort"), p.ContainerPort, "must match `hostPort` when `hostNetwork` is true"))
		}
		id := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		errs = append(errs, check.Unique(at.Child("hostPort"), id, taken)...)
	}
	return errs
}
