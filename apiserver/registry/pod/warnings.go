package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/kind"
)

// podWarnings returns warnings only for new pods. As upstream, updates get none, because most come from programs.
func podWarnings(next, cur kind.Object) []string {
	if cur != nil {
		return nil
	}
	pod := next.(*corev1.Pod)
	return Warnings(nil, &pod.ObjectMeta, &pod.Spec)
}

// Warnings returns warnings about a valid pod, or about the template at path (upstream: pkg/api/pod).
func Warnings(path *field.Path, meta *metav1.ObjectMeta, spec *corev1.PodSpec) []string {
	notes := warningList{}
	notes.schedulingWarnings(spec, path.Child("spec"))
	notes.annotationWarnings(meta, spec, path)
	notes.lines = append(notes.lines, volume.All().Warnings(spec.Volumes, path.Child("spec", "volumes"))...)
	notes.listWarnings(spec, path.Child("spec"))
	notes.amountWarnings(path.Child("spec", "overhead"), spec.Overhead)
	for c, at := range ContainersAt(spec, path.Child("spec")) {
		notes.amountWarnings(at.Child("resources", "limits"), c.Resources.Limits)
		notes.amountWarnings(at.Child("resources", "requests"), c.Resources.Requests)
		seen := map[string]bool{}
		for i, e := range c.Env { // a later value may refer to the earlier one
			ref := "$(" + e.Name + ")"
			extends := e.ValueFrom == nil && e.Value != ref && strings.Contains(e.Value, ref)
			if seen[e.Name] && !extends {
				notes.add(at.Child("env").Index(i),
					"hides previous definition of %q, which may be dropped when using apply", e.Name)
			}
			seen[e.Name] = true
		}
	}
	notes.portWarnings(spec, path.Child("spec"))
	if s := spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		notes.add(path.Child("spec", "terminationGracePeriodSeconds"),
			"must be >= 0; negative values are invalid and will be treated as 1")
	}
	return notes.lines
}

// warningList collects warnings with their fields.
type warningList struct{ lines []string }

func (n *warningList) add(path *field.Path, format string, args ...any) {
	n.lines = append(n.lines, path.String()+": "+fmt.Sprintf(format, args...))
}

// newerLabel returns a warning with the successor of a deprecated node label; empty: the label is not deprecated.
func newerLabel(key string) string {
	const deprecated = "deprecated since v1.%d; use %q instead"
	switch key {
	case "beta.kubernetes.io/arch":
		return fmt.Sprintf(deprecated, 14, corev1.LabelArchStable)
	case "beta.kubernetes.io/os":
		return fmt.Sprintf(deprecated, 14, corev1.LabelOSStable)
	case corev1.LabelFailureDomainBetaRegion:
		return fmt.Sprintf(deprecated, 17, corev1.LabelTopologyRegion)
	case corev1.LabelFailureDomainBetaZone:
		return fmt.Sprintf(deprecated, 17, corev1.LabelTopologyZone)
	case corev1.LabelInstanceType:
		return fmt.Sprintf(deprecated, 17, corev1.LabelInstanceTypeStable)
	}
	return ""
}

func (n *warningList) schedulingWarnings(spec *corev1.PodSpec, path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if newer := newerLabel(key); newer != "" {
			n.add(path.Child("nodeSelector").Key(key), "%s", newer)
		}
	}
	for i, t := range spec.TopologySpreadConstraints {
		at := path.Child("topologySpreadConstraints").Index(i)
		n.oldLabel(at.Child("topologyKey"), t.TopologyKey)
		n.nullSelector(at, t.LabelSelector)
	}
	if spec.Affinity != nil {
		n.affinityWarnings(spec.Affinity, path.Child("affinity"))
	}
}

func (n *warningList) oldLabel(path *field.Path, key string) {
	if newer := newerLabel(key); newer != "" {
		n.add(path, "%s is %s", key, newer)
	}
}

func (n *warningList) nullSelector(path *field.Path, selector *metav1.LabelSelector) {
	if selector == nil {
		n.add(path.Child("labelSelector"), "a null labelSelector results in matching no pod")
	}
}

func (n *warningList) affinityWarnings(a *corev1.Affinity, path *field.Path) {
	if node := a.NodeAffinity; node != nil {
		at := path.Child("nodeAffinity")
		if s := node.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
			for i, term := range s.NodeSelectorTerms {
				n.nodeTerm(&term, at.Child(RequiredTerms, "nodeSelectorTerms").Index(i))
			}
		}
		for i, term := range node.PreferredDuringSchedulingIgnoredDuringExecution {
			n.nodeTerm(&term.Preference, at.Child(preferredTerms).Index(i).Child("preference"))
		}
	}
	pods := func(must []corev1.PodAffinityTerm, may []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i := range must {
			n.nullSelector(at.Child(RequiredTerms).Index(i), must[i].LabelSelector)
		}
		for i := range may {
			n.nullSelector(at.Child(preferredTerms).Index(i).Child("podAffinityTerm"), may[i].PodAffinityTerm.LabelSelector)
		}
	}
	if p := a.PodAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAffinity"))
	}
	if p := a.PodAntiAffinity; p != nil {
		pods(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution,
			path.Child("podAntiAffinity"))
	}
}

func (n *warningList) nodeTerm(term *corev1.NodeSelectorTerm, path *field.Path) {
	for i, e := range term.MatchExpressions {
		n.oldLabel(path.Child("matchExpressions").Index(i).Child("key"), e.Key)
	}
}

// annotationWarnings warns about annotations that fields have replaced. AppArmor's annotation still works in pods, so
// that only templates get its warning.
func (n *warningList) annotationWarnings(meta *metav1.ObjectMeta, spec *corev1.PodSpec, path *field.Path) {
	at := path.Child("metadata", "annotations")
	old := func(key, format string, args ...any) {
		if _, ok := meta.Annotations[key]; ok {
			n.add(at.Key(key), format, args...)
		}
	}
	old("scheduler.alpha.kubernetes.io/critical-pod", "non-functional in v1.16+; use the %q field instead",
		"priorityClassName")
	old("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the %q field instead", "sysctls")
	old("security.alpha.kubernetes.io/unsafe-sysctls", "non-functional in v1.11+; use the %q field instead", "sysctls")
	const seccomp, appArmor = "non-functional in v1.27+; use the %q field instead",
		"deprecated since v1.30; use the %q field instead"
	if s := spec.SecurityContext; s == nil || s.SeccompProfile == nil {
		old(corev1.SeccompPodAnnotationKey, seccomp, "seccompProfile")
	}
	armored := spec.SecurityContext != nil && spec.SecurityContext.AppArmorProfile != nil
	for c := range ContainersAt(spec, path) {
		s := c.SecurityContext
		if s == nil || s.SeccompProfile == nil {
			old(corev1.SeccompContainerAnnotationKeyPrefix+c.Name, seccomp, "seccompProfile")
		}
		if path != nil && !armored && (s == nil || s.AppArmorProfile == nil) {
			old(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name, appArmor, "appArmorProfile")
		}
	}
}

// listWarnings warns about duplicate and empty entries.
func (n *warningList) listWarnings(spec *corev1.PodSpec, path *field.Path) {
	seen := map[string]bool{}
	for i, alias := range spec.HostAliases {
		if seen[alias.IP] {
			n.add(path.Child("hostAliases").Index(i).Child("ip"), "duplicate ip %q", alias.IP)
		}
		seen[alias.IP] = true
	}
	clear(seen)
	for i, secret := range spec.ImagePullSecrets {
		at := path.Child("imagePullSecrets").Index(i).Child("name")
		if seen[secret.Name] {
			n.add(at, "duplicate name %q", secret.Name)
		}
		if secret.Name == "" {
			n.add(at, "invalid empty name %q", secret.Name)
		}
		seen[secret.Name] = true
	}
}

func (n *warningList) amountWarnings(path *field.Path, list corev1.ResourceList) {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if amount, ok := list[name]; ok && amount.MilliValue()%1000 != 0 {
			n.add(path.Key(string(name)), "fractional byte value %q is invalid, must be an integer", amount.String())
		}
	}
}

// portPlace is a port and its path.
type portPlace struct {
	corev1.ContainerPort
	path *field.Path
}

func (n *warningList) portWarnings(spec *corev1.PodSpec, path *field.Path) {
	before := map[string][]portPlace{}
	for c, at := range ContainersAt(spec, path) {
		for i, port := range c.Ports {
			here := portPlace{port, at.Child("ports").Index(i)}
			if port.HostIP != "" && port.HostPort == 0 {
				n.add(here.path, "hostIP set without hostPort: %+v", port)
			}
			key := fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol)
			for _, other := range before[key] {
				if clash := portClash(&here, &other); clash != "" {
					n.add(here.path, "%s port definition with %s", clash, other.path)
				}
			}
			before[key] = append(before[key], here)
		}
	}
}

// portClash returns a warning about two definitions of the same port.
func portClash(a, b *portPlace) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}
