package core

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// componentStatusResource returns ComponentStatus, the health of the components. The server checks it for each request.
func componentStatusResource() kind.Resource {
	return kind.Resource{
		GVR:        client.ComponentStatuses,
		Kind:       "ComponentStatus",
		ShortNames: []string{"cs"},
		Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
		Verbs:      []string{"get", "list"},
		Virtual:    true,
		New:        func() kind.Object { return new(corev1.ComponentStatus) },
		Columns: []table.Column{
			table.Name(),
			table.Text("Status", "Healthy, Unhealthy or Unknown.", componentHealth),
			table.Text("Message", "The result of the health check.",
				func(c *corev1.ComponentStatus) string { return componentCondition(c).Message }),
			table.Text("Error", "The error of the health check.",
				func(c *corev1.ComponentStatus) string { return componentCondition(c).Error }),
		},
	}
}

func componentCondition(c *corev1.ComponentStatus) corev1.ComponentCondition {
	for _, condition := range c.Conditions {
		if condition.Type == corev1.ComponentHealthy {
			return condition
		}
	}
	return corev1.ComponentCondition{}
}

func componentHealth(c *corev1.ComponentStatus) string {
	switch componentCondition(c).Status {
	case corev1.ConditionTrue:
		return "Healthy"
	case corev1.ConditionFalse:
		return "Unhealthy"
	}
	return "Unknown"
}

// bindingResource returns Binding, the older way to bind a pod: a POST to the bindings of the namespace instead of the
// subresource binding of the pod.
func bindingResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Bindings,
		Kind:       "Binding",
		Namespaced: true,
		Verbs:      []string{"create"},
		Virtual:    true,
		New:        func() kind.Object { return new(corev1.Binding) },
		Columns:    []table.Column{table.Name(), table.Age()},
	}
}
