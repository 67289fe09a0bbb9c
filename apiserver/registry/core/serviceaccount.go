package core

import (
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

// serviceAccountResource validates only the metadata, as upstream does.
func serviceAccountResource() kind.Resource {
	return kind.Resource{
		GVR:          client.ServiceAccounts,
		Kind:         "ServiceAccount",
		Namespaced:   true,
		ShortNames:   []string{"sa"},
		Subresources: []kind.Subresource{tokenSubresource()},

		New: func() kind.Object { return new(corev1.ServiceAccount) },

		ReturnDeleted: true,

		Columns: []table.Column{
			table.Name(),
			table.Count("Secrets", "Number of secrets that its pods may use.",
				func(s *corev1.ServiceAccount) int { return len(s.Secrets) }),
			table.Age(),
		},
	}
}
