package pod

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// ephemeralValidate validates ephemeral containers, which have no ports, probes, hooks or resources.
func ephemeralValidate(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	const never = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	for i := range spec.EphemeralContainers {
		c, at := &spec.EphemeralContainers[i], path.Index(i)
		target := func(c corev1.Container) bool { return c.Name == spec.EphemeralContainers[i].TargetContainerName }
		if c.TargetContainerName != "" && !slices.ContainsFunc(spec.Containers, target) &&
			!slices.ContainsFunc(spec.InitContainers, target) {
			errs = append(errs, field.NotFound(at.Child("targetContainerName"), c.TargetContainerName))
		}
		errs = append(errs, check.Forbidden(at, never, []check.Field{
			{"ports", c.Ports != nil},
			{"resources", c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil},
			{"resizePolicy", c.ResizePolicy != nil},
			{"restartPolicy", c.RestartPolicy != nil},
			{"restartPolicyRules", c.RestartPolicyRules != nil},
			{"livenessProbe", c.LivenessProbe != nil},
			{"readinessProbe", c.ReadinessProbe != nil},
			{"startupProbe", c.StartupProbe != nil},
			{"lifecycle", c.Lifecycle != nil}})...)
		for j, m := range c.VolumeMounts {
			errs = append(errs, check.Forbidden(at.Child("volumeMounts").Index(j), never, []check.Field{
				{"subPath", m.SubPath != ""}, {"subPathExpr", m.SubPathExpr != ""}})...)
		}
	}
	return errs
}
