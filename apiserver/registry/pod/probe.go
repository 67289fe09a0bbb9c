package pod

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

func probesValidate(c *corev1.Container, path *field.Path) field.ErrorList {
	errs := probeValidate(c.LivenessProbe, true, path.Child("livenessProbe"))
	errs = append(errs, probeValidate(c.StartupProbe, true, path.Child("startupProbe"))...)
	at := path.Child("readinessProbe")
	errs = append(errs, probeValidate(c.ReadinessProbe, false, at)...)
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds,
			"must not be set for readinessProbes"))
	}
	return errs
}

// probeValidate validates a probe. A probe that kills containers must have a success threshold of 1.
func probeValidate(p *corev1.Probe, kills bool, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := slices.Concat(
		check.Union(path, p.ProbeHandler, "handler type"),
		execValidate(p.Exec, path.Child("exec")),
		httpGetValidate(p.HTTPGet, path.Child("httpGet")))
	if p.TCPSocket != nil {
		errs = append(errs, check.PortOrName(path.Child("tcpSocket", "port"), p.TCPSocket.Port)...)
	}
	if p.GRPC != nil {
		errs = append(errs, check.Port(path.Child("grpc", "port"), p.GRPC.Port)...)
	}
	errs = slices.Concat(errs,
		check.NonNegative(path.Child("initialDelaySeconds"), p.InitialDelaySeconds),
		check.NonNegative(path.Child("timeoutSeconds"), p.TimeoutSeconds),
		check.NonNegative(path.Child("periodSeconds"), p.PeriodSeconds),
		check.NonNegative(path.Child("successThreshold"), p.SuccessThreshold),
		check.NonNegative(path.Child("failureThreshold"), p.FailureThreshold))
	if kills && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if g := p.TerminationGracePeriodSeconds; kills && g != nil && *g <= 0 {
		errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *g, "must be greater than 0"))
	}
	return errs
}

func execValidate(e *corev1.ExecAction, path *field.Path) field.ErrorList {
	if e == nil || len(e.Command) > 0 {
		return nil
	}
	return field.ErrorList{field.Required(path.Child("command"), "")}
}

func httpGetValidate(get *corev1.HTTPGetAction, path *field.Path) field.ErrorList {
	if get == nil {
		return nil
	}
	errs := check.Required(path.Child("path"), get.Path)
	errs = append(errs, check.PortOrName(path.Child("port"), get.Port)...)
	errs = append(errs, check.OneOf(path.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for i, h := range get.HTTPHeaders {
		errs = append(errs,
			check.Invalid(path.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
	}
	return errs
}

func lifecycleValidate(spec *corev1.PodSpec, l *corev1.Lifecycle, path *field.Path) field.ErrorList {
	if l == nil {
		return nil
	}
	errs := hookValidate(spec, l.PostStart, path.Child("postStart"))
	errs = append(errs, hookValidate(spec, l.PreStop, path.Child("preStop"))...)
	if l.StopSignal != nil && spec.OS == nil {
		errs = append(errs,
			field.Forbidden(path.Child("stopSignal"), "may not be set for containers with empty `spec.os.name`"))
	}
	return errs
}

func hookValidate(spec *corev1.PodSpec, h *corev1.LifecycleHandler, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	errs := check.Union(path, *h, "handler type")
	errs = append(errs, execValidate(h.Exec, path.Child("exec"))...)
	errs = append(errs, httpGetValidate(h.HTTPGet, path.Child("httpGet"))...)
	if h.TCPSocket != nil {
		errs = append(errs, check.PortOrName(path.Child("tcpSocket", "port"), h.TCPSocket.Port)...)
	}
	grace := spec.TerminationGracePeriodSeconds
	if s := h.Sleep; s != nil && grace != nil && (s.Seconds < 0 || s.Seconds > *grace) {
		errs = append(errs, field.Invalid(path.Child("sleep"), s.Seconds,
			fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace)))
	}
	return errs
}
