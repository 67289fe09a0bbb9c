package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ephemeralValidate validates ephemeral containers, which have no ports, probes, hooks or resources.
func ephemeralValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range spec.EphemeralContainers {
		c, at := &spec.EphemeralContainers[i], path.Index(i)
		if c.TargetContainerName != "" && !isMain(spec, c.TargetContainerName) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), c.TargetContainerName))
		}
		errs = append(errs, ephemeralFields(&c.EphemeralContainerCommon, at)...)
	}
	return errs
}

func isMain(spec *corev1.PodSpec, name string) bool {
	named := func(c corev1.Container) bool { return c.Name == name }
	return slices.ContainsFunc(spec.Containers, named) || slices.ContainsFunc(spec.InitContainers, named)
}

func ephemeralFields(c *corev1.EphemeralContainerCommon, path *field.Path) field.ErrorList {
	const never = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"ports", c.Ports != nil},
		{"resources", c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil},
		{"resizePolicy", c.ResizePolicy != nil},
		{"restartPolicy", c.RestartPolicy != nil},
		{"restartPolicyRules", c.RestartPolicyRules != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
		{"lifecycle", c.Lifecycle != nil},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(path.Child(f.name), never))
		}
	}
	for i, m := range c.VolumeMounts {
		at := path.Child("volumeMounts").Index(i)
		if m.SubPath != "" {
			errs = append(errs, field.Forbidden(at.Child("subPath"), never))
		}
		if m.SubPathExpr != "" {
			errs = append(errs, field.Forbidden(at.Child("subPathExpr"), never))
		}
	}
	return errs
}
