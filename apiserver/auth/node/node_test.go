package node_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/auth/node"
	"monopod/apiserver/auth/rbac"
	"monopod/apiserver/auth/rbac/policy"
	"monopod/apiserver/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func pod(name, on string, spec corev1.PodSpec) *corev1.Pod {
	spec.NodeName, spec.ServiceAccountName = on, "default"
	spec.Containers = []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env-" + name}}}}}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

// Agents read what their pods refer to.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	api := registry.New(s, resources, registry.Config{})
	for _, err := range []error{api.Bootstrap(t.Context()), policy.Bootstrap(t.Context(), api)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	volumes := []corev1.Volume{
		{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf"}}}},
		{Name: "b", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}},
	}
	for _, obj := range []client.Object{pod("p1", "n1", corev1.PodSpec{Volumes: volumes}), pod("p2", "n2", corev1.PodSpec{})} {
		if _, err := api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	roles := rbac.New(rbac.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- roles.Run(ctx, api) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	z := node.Authorizer{Authorizer: roles, Client: api}
	n1 := auth.User{Name: "system:node:n1", Groups: []string{auth.Nodes, auth.Authenticated}}
	for name, c := range map[string]struct {
		user                            auth.User
		verb, resource, sub, ns, object string
		want                            bool
	}{
		"a pod's secret":            {n1, "get", "secrets", "", "default", "env-p1", true},
		"to watch it":               {n1, "watch", "secrets", "", "default", "env-p1", true},
		"to write it":               {n1, "update", "secrets", "", "default", "env-p1", false},
		"another node's secret":     {n1, "get", "secrets", "", "default", "env-p2", false},
		"a secret elsewhere":        {n1, "get", "secrets", "", "kube-system", "env-p1", false},
		"all secrets":               {n1, "list", "secrets", "", "", "", false},
		"a pod's ConfigMap":         {n1, "get", "configmaps", "", "default", "conf", true},
		"a pod's claim":             {n1, "get", "persistentvolumeclaims", "", "default", "disk", true},
		"a token of a pod's":        {n1, "create", "serviceaccounts", "token", "default", "default", true},
		"a token of another's":      {n1, "create", "serviceaccounts", "token", "kube-system", "default", false},
		"pods":                      {n1, "list", "pods", "", "", "", true},
		"its status":                {n1, "patch", "nodes", "status", "", "n1", true},
		"to delete nodes":           {n1, "delete", "nodes", "", "", "n1", false},
		"what everybody may":        {n1, "create", "selfsubjectaccessreviews", "", "", "", false},
		"one who only says so":      {auth.User{Name: "system:node:n1"}, "list", "pods", "", "", "", false},
		"one of the group, unnamed": {auth.User{Name: "x", Groups: []string{auth.Nodes}}, "list", "pods", "", "", "", false},
	} {
		got, reason, err := z.Authorize(t.Context(), auth.Attributes{
			User: c.user, Verb: c.verb, Resource: c.resource, Subresource: c.sub, Namespace: c.ns, Name: c.object})
		if err != nil || got != c.want {
			t.Errorf("%s: %t %q, %v", name, got, reason, err)
		}
	}
	own := auth.Attributes{User: n1, Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}
	if ok, reason, err := z.Authorize(t.Context(), own); !ok || err != nil {
		t.Errorf("what RBAC allows everybody: %q, %v", reason, err)
	}
}
