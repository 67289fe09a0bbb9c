package pod

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
)

// podSpecDefault sets the defaults of the spec of a pod or a template (upstream: SetDefaults_*).
func podSpecDefault(spec *corev1.PodSpec) {
	kind.SetIfZero(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	kind.SetIfZero(&spec.DNSPolicy, corev1.DNSClusterFirst)
	kind.SetIfZero(&spec.SchedulerName, corev1.DefaultSchedulerName)
	kind.SetIfNil(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	kind.SetIfZero(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	resourcesRound(spec.Overhead)
	if spec.Resources != nil {
		resourcesRound(spec.Resources.Limits)
		resourcesRound(spec.Resources.Requests)
	}
	for i := range spec.Volumes {
		volume.All().Default(&spec.Volumes[i].VolumeSource)
	}
	for c := range Containers(spec) {
		containerDefault(c)
	}
}

// podDefault sets the defaults of pods that templates do not have (upstream: SetDefaults_Pod), after those of
// podSpecDefault. Admission sets the defaults that depend on other objects.
func podDefault(obj kind.Object) {
	pod := obj.(*corev1.Pod)
	podSpecDefault(&pod.Spec)
	if g := pod.Spec.TerminationGracePeriodSeconds; *g < 0 {
		*g = 1
	}
	kind.SetIfNil(&pod.Spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for c := range Containers(&pod.Spec) {
		if len(c.Resources.Limits) > 0 { // requests default to the limits
			requests := maps.Clone(c.Resources.Limits)
			maps.Copy(requests, c.Resources.Requests)
			c.Resources.Requests = requests
		}
		for i := range c.Ports {
			if pod.Spec.HostNetwork {
				kind.SetIfZero(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
			}
		}
	}
	kind.SetIfZero(&pod.Status.QOSClass, podQOS(&pod.Spec))
}

func containerDefault(c *corev1.Container) {
	kind.SetIfZero(&c.ImagePullPolicy, volume.PullPolicy(c.Image))
	kind.SetIfZero(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	kind.SetIfZero(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		kind.SetIfZero(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			volume.FieldRefDefault(from.FieldRef)
		}
	}
	resourcesRound(c.Resources.Limits)
	resourcesRound(c.Resources.Requests)
	probeDefault(c.LivenessProbe)
	probeDefault(c.ReadinessProbe)
	probeDefault(c.StartupProbe)
	if c.Lifecycle != nil {
		lifecycleDefault(c.Lifecycle.PostStart)
		lifecycleDefault(c.Lifecycle.PreStop)
	}
}

func probeDefault(p *corev1.Probe) {
	if p == nil {
		return
	}
	kind.SetIfZero(&p.TimeoutSeconds, 1)
	kind.SetIfZero(&p.PeriodSeconds, 10)
	kind.SetIfZero(&p.SuccessThreshold, 1)
	kind.SetIfZero(&p.FailureThreshold, 3)
	httpGetDefault(p.HTTPGet)
	if p.GRPC != nil {
		kind.SetIfNil(&p.GRPC.Service, "")
	}
}

func lifecycleDefault(h *corev1.LifecycleHandler) {
	if h != nil {
		httpGetDefault(h.HTTPGet)
	}
}

func httpGetDefault(get *corev1.HTTPGetAction) {
	if get == nil {
		return
	}
	kind.SetIfZero(&get.Path, "/")
	kind.SetIfZero(&get.Scheme, corev1.URISchemeHTTP)
}

// resourcesRound rounds amounts up to thousandths, the smallest unit.
func resourcesRound(list corev1.ResourceList) {
	for name, amount := range list {
		rounded := amount.DeepCopy()
		if !rounded.RoundUp(resource.Milli) {
			list[name] = rounded
		}
	}
}
