package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/volume"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/kind"
)

// Upstream's names and values (plugin/pkg/admission/serviceaccount).
const (
	defaultAccount = "default"
	tokenVolume    = "kube-api-access-"
	tokenPath      = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds   = 60*60 + 7
	rootCA         = "kube-root-ca.crt"
	// accountWait is the time that a new pod waits for the default account, which a controller creates in new namespaces.
	accountWait = time.Second
	accountPoll = 10 * time.Millisecond
)

// serviceAccount sets a pod's service account, the account's image pull secrets and a volume with API credentials.
func serviceAccount(c client.Client) admission.Plugin {
	return admission.Plugin{Name: "ServiceAccount", Mutate: func(ctx context.Context, r *admission.Request) error {
		pod, ok := r.Object.(*corev1.Pod)
		if !ok || r.Operation != admission.Create || r.Subresource != "" {
			return nil
		}
		if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
			// No user was authorized to create the static pod, so that it must not refer to API objects.
			uses := map[string]bool{}
			volume.All().References(pod, func(resource, _ string) { uses[resource] = true })
			switch {
			case pod.Spec.ServiceAccountName != "":
				return r.Forbid(errors.New("a mirror pod may not reference service accounts"))
			case uses["secrets"]:
				return r.Forbid(errors.New("a mirror pod may not reference secrets"))
			case uses["serviceaccounts"]:
				return r.Forbid(errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
			return nil
		}
		spec := &pod.Spec
		kind.SetIfZero(&spec.ServiceAccountName, defaultAccount)
		name := spec.ServiceAccountName
		spec.DeprecatedServiceAccount = name
		account, err := findAccount(ctx, c, r.Namespace, name)
		if err != nil {
			return r.Forbid(fmt.Errorf("error looking up service account %s/%s: %w", r.Namespace, name, err))
		}
		// The pod's setting takes precedence over its account's.
		if ptr.Deref(cmp.Or(spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken), true) {
			mountToken(spec)
		}
		if len(spec.ImagePullSecrets) == 0 {
			spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
		}
		return nil
	}}
}

// findAccount returns a service account. It waits for accountWait until the account exists.
func findAccount(ctx context.Context, c client.Client, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := client.Get[*corev1.ServiceAccount](ctx, c, namespace, name)
	for waited := time.Duration(0); apierrors.IsNotFound(err) && name == defaultAccount &&
		waited < accountWait; waited += accountPoll {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(accountPoll):
		}
		account, err = client.Get[*corev1.ServiceAccount](ctx, c, namespace, name)
	}
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(corev1.Resource("serviceaccount"), name) // singular, as upstream's
	}
	return account, err
}

// mountToken mounts the credentials into each container that has no other mount at their path. It adds the volume if
// the pod has none.
func mountToken(spec *corev1.PodSpec) {
	name, brought := "", false
	for i := range spec.Volumes {
		if brought = strings.HasPrefix(spec.Volumes[i].Name, tokenVolume); brought {
			name = spec.Volumes[i].Name
			break
		}
	}
	if !brought {
		name = tokenVolume + utilrand.String(5)
	}
	mounted := mountInto(spec.InitContainers, name)
	mounted = mountInto(spec.Containers, name) || mounted
	if mounted && !brought {
		spec.Volumes = append(spec.Volumes, credentials(name))
	}
}

func mountInto(list []corev1.Container, volume string) (any bool) {
	for i := range list {
		taken := slices.ContainsFunc(list[i].VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.MountPath == tokenPath })
		if !taken {
			list[i].VolumeMounts = append(list[i].VolumeMounts,
				corev1.VolumeMount{Name: volume, ReadOnly: true, MountPath: tokenPath})
			any = true
		}
	}
	return any
}

// credentials returns the volume with API credentials: a token, the server's CA certificate and the namespace.
func credentials(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(corev1.ProjectedVolumeSourceDefaultMode),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token",
				ExpirationSeconds: new(int64(tokenSeconds))}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: rootCA},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
		},
	}}}
}
