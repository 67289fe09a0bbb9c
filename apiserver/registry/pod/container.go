package pod

import (
	"fmt"
	"iter"
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
	errs = append(errs, hostPortsValidate(spec, path)...)
	errs = append(errs, ephemeralValidate(spec, path.Child("ephemeralContainers"))...)
	for i := range spec.InitContainers {
		errs = append(errs, initContainerValidate(&spec.InitContainers[i], path.Child("initContainers").Index(i))...)
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
	errs := check.Named(path.Child("name"), c.Name, validation.IsDNS1123Label)
	errs = append(errs, imageValidate(c.Image, path.Child("image"))...)
	errs = append(errs, portsValidate(c.Ports, path.Child("ports"))...)
	errs = append(errs, envValidate(c.Env, volumes, path.Child("env"))...)
	errs = append(errs, envFromValidate(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, mountsValidate(c, volumes, path)...)
	errs = append(errs, probesValidate(c, path)...)
	errs = append(errs, lifecycleValidate(spec, c.Lifecycle, path.Child("lifecycle"))...)
	errs = append(errs,
		check.OneOf(path.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, corev1.TerminationMessageReadFile,
			corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs,
		check.OneOf(path.Child("imagePullPolicy"), c.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
			corev1.PullNever)...)
	errs = append(errs, resizeValidate(c.ResizePolicy, path.Child("resizePolicy"))...)
	errs = append(errs, restartValidate(c, path)...)
	return append(errs, containerSecurityValidate(spec, c.SecurityContext, path.Child("securityContext"))...)
}

func imageValidate(image string, path *field.Path) field.ErrorList {
	if strings.TrimSpace(image) != image {
		return field.ErrorList{field.Invalid(path, image, "must not have leading or trailing whitespace")}
	}
	return check.Required(path, image)
}

// initContainerValidate validates an init container: only sidecars may have probes and hooks.
func initContainerValidate(c *corev1.Container, path *field.Path) field.ErrorList {
	if IsSidecar(c) {
		return nil
	}
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			errs = append(errs,
				field.Forbidden(path.Child(f.name), "may not be set for init containers without restartPolicy=Always"))
		}
	}
	return errs
}

func resizeValidate(policies []corev1.ContainerResizePolicy, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		errs = append(errs,
			check.OneOf(path.Index(i).Child("resourceName"), p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs,
			check.OneOf(path.Index(i).Child("restartPolicy"), p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)...)
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(path.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
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
		errs = append(errs,
			check.OneOf(on.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart,
				corev1.ContainerRestartRuleActionRestartAllContainers)...)
		errs = append(errs, ruleCodes(rule.ExitCodes, on.Child("exitCodes"))...)
	}
	return errs
}

func ruleCodes(codes *corev1.ContainerRestartRuleOnExitCodes, path *field.Path) field.ErrorList {
	if codes == nil {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(codes.Values) > maxRuleCodes {
		return field.ErrorList{field.TooMany(path.Child("values"), len(codes.Values), maxRuleCodes)}
	}
	return check.OneOf(path.Child("operator"), codes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn,
		corev1.ContainerRestartRuleOnExitCodesOpNotIn)
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
		errs = append(errs, portValidate(p, at)...)
	}
	return errs
}

func portValidate(p corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if p.ContainerPort == 0 {
		errs = append(errs, field.Required(path.Child("containerPort"), ""))
	} else {
		errs = append(errs,
			check.Invalid(path.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))...)
	}
	if p.HostPort != 0 {
		errs = append(errs, check.Invalid(path.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))...)
	}
	if p.HostIP != "" {
		errs = append(errs, validation.IsValidIP(path.Child("hostIP"), p.HostIP)...)
	}
	return append(errs,
		check.OneOf(path.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
}

// hostPortsValidate requires unique host ports among containers that run at the same time. Init containers end before
// the others start.
func hostPortsValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.InitContainers {
		errs = append(errs,
			hostPortsOf(spec, &spec.InitContainers[i], map[string]bool{}, path.Child("initContainers").Index(i))...)
	}
	taken := map[string]bool{}
	for i := range spec.Containers {
		errs = append(errs, hostPortsOf(spec, &spec.Containers[i], taken, path.Child("containers").Index(i))...)
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
		if taken[id] {
			errs = append(errs, field.Duplicate(at.Child("hostPort"), id))
		}
		taken[id] = true
	}
	return errs
}
