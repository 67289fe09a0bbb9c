// Package node decides what agents may do: what ClusterRole system:node says, but
// of secrets, configuration, claims and volumes only what the pods on their node
// refer to. What agents may write is admission's NodeRestriction.
package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/auth"
	"monopod/apiserver/auth/rbac"
	"monopod/apiserver/client"
)

const role = "system:node"

// Authorizer asks RBAC about all others, and about agents too where it refuses.
type Authorizer struct {
	*rbac.Authorizer
	Client client.Client
}

var _ auth.Authorizer = Authorizer{}

// Authorize implements auth.Authorizer.
func (z Authorizer) Authorize(ctx context.Context, a auth.Attributes) (bool, string, error) {
	name, ok := strings.CutPrefix(a.User.Name, auth.NodePrefix)
	if !ok || name == "" || !slices.Contains(a.User.Groups, auth.Nodes) {
		return z.Authorizer.Authorize(ctx, a)
	}
	why, err := z.refuse(ctx, name, &a)
	if why == "" && err == nil {
		return true, "", nil
	}
	if err != nil {
		return false, "", err
	}
	allowed, reason, err := z.Authorizer.Authorize(ctx, a)
	if !allowed && reason == "" {
		reason = why
	}
	return allowed, reason, err
}

const notAllowed = "not allowed for agents"

// refuse says why the agent of the node may not; empty: it may.
func (z Authorizer) refuse(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	r, err := client.Get[*rbacv1.ClusterRole](ctx, z.Client, "", role)
	if apierrors.IsNotFound(err) {
		return fmt.Sprintf("ClusterRole %q not found", role), nil
	}
	if err != nil || !rbac.Allows(r.Rules, a) {
		return notAllowed, err
	}
	if a.Group != "" {
		return "", nil
	}
	switch a.Resource {
	case "secrets", "configmaps", "persistentvolumeclaims", "persistentvolumes":
		return z.related(ctx, node, a)
	case "serviceaccounts":
		return z.runsAs(ctx, node, a)
	}
	return "", nil
}

// related: an object is an agent's to read when a pod on its node refers to it.
func (z Authorizer) related(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	if a.Name == "" {
		return "No Object name found", nil
	}
	pods, err := z.podsOn(ctx, node, a.Namespace)
	if err != nil {
		return "", err
	}
	for _, pod := range pods {
		found, err := z.refers(ctx, pod, a)
		if found || err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node), nil
}

func (z Authorizer) runsAs(ctx context.Context, node string, a *auth.Attributes) (string, error) {
	pods, err := z.podsOn(ctx, node, a.Namespace)
	if err != nil || slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.Spec.ServiceAccountName == a.Name }) {
		return "", err
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node), nil
}

func (z Authorizer) podsOn(ctx context.Context, node, namespace string) ([]*corev1.Pod, error) {
	return client.List[*corev1.Pod](ctx, z.Client, client.Selector{
		Namespace: namespace, Fields: fields.OneTermEqualSelector("spec.nodeName", node)})
}

func (z Authorizer) refers(ctx context.Context, pod *corev1.Pod, a *auth.Attributes) (bool, error) {
	if a.Resource != "persistentvolumes" {
		return slices.Contains(references(pod)[a.Resource], a.Name), nil
	}
	for _, name := range references(pod)["persistentvolumeclaims"] {
		claim, err := client.Get[*corev1.PersistentVolumeClaim](ctx, z.Client, pod.Namespace, name)
		if err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
		if err == nil && claim.Spec.VolumeName == a.Name {
			return true, nil
		}
	}
	return false, nil
}

// references are the names of what the pod reads in its namespace, by resource.
func references(pod *corev1.Pod) map[string][]string {
	found := map[string][]string{}
	add := func(resource, name string) { found[resource] = append(found[resource], name) }
	for _, s := range pod.Spec.ImagePullSecrets {
		add("secrets", s.Name)
	}
	for i := range pod.Spec.Volumes {
		ofVolume(pod, &pod.Spec.Volumes[i], add)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		ofContainer(c.Env, c.EnvFrom, add)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		ofContainer(c.Env, c.EnvFrom, add)
	}
	return found
}

func ofVolume(pod *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	switch {
	case v.Secret != nil:
		add("secrets", v.Secret.SecretName)
	case v.ConfigMap != nil:
		add("configmaps", v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		add("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		add("persistentvolumeclaims", pod.Name+"-"+v.Name)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		add("secrets", v.CSI.NodePublishSecretRef.Name)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.Secret != nil {
				add("secrets", s.Secret.Name)
			}
			if s.ConfigMap != nil {
				add("configmaps", s.ConfigMap.Name)
			}
		}
	}
}

func ofContainer(env []corev1.EnvVar, from []corev1.EnvFromSource, add func(resource, name string)) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			add("secrets", ref.Name)
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			add("configmaps", ref.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			add("secrets", f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			add("configmaps", f.ConfigMapRef.Name)
		}
	}
}
