package node_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod/apiserver/access/node"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func pod(name, on string, spec corev1.PodSpec) *corev1.Pod {
	spec.NodeName, spec.ServiceAccountName = on, "default"
	spec.Containers = []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env-" + name}}}}}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}
}

func deviceSlice(name, node string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{Driver: "d", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node,
			ResourceSliceCount: 1}},
	}
}

// Agents read only what their pods refer to.
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
	size := corev1.ResourceList{"storage": resource.MustParse("1Gi")}
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	disk := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "disk"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, VolumeName: "vol", StorageClassName: new(""),
			Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	csiVolume := func(name, claim string) *corev1.PersistentVolume {
		secret := func(of string) *corev1.SecretReference {
			return &corev1.SecretReference{Namespace: "drivers", Name: of + "-" + name}
		}
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PersistentVolumeSpec{AccessModes: modes, Capacity: size,
				ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: claim},
				PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d",
					VolumeHandle: "h", NodeStageSecretRef: secret("stage"), ControllerPublishSecretRef: secret("attach")}}}}
	}
	attached := func(node string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "to-" + node},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: node,
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("vol")}}}
	}
	mirror := pod("mirror", "n1", corev1.PodSpec{})
	mirror.Spec.ServiceAccountName, mirror.Spec.Containers[0].EnvFrom = "", nil
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	for _, obj := range []client.Object{deviceSlice("own", "n1"), deviceSlice("other", "n2"),
		disk, csiVolume("vol", "disk"), csiVolume("w", "other"), attached("n1"), attached("n2"),
		pod("p1", "n1", corev1.PodSpec{Volumes: volumes, ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu",
			ResourceClaimName: new("gpu")}}}), pod("p2", "n2", corev1.PodSpec{}), mirror} {
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
	group := map[string]string{"leases": "coordination.k8s.io", "csinodes": "storage.k8s.io",
		"volumeattachments": "storage.k8s.io",
		"resourceclaims":    "resource.k8s.io", "resourceslices": "resource.k8s.io"}
	for name, c := range map[string]struct {
		user                            auth.User
		verb, resource, sub, ns, object string
		want                            bool
	}{
		"a pod's secret":                       {n1, "get", "secrets", "", "default", "env-p1", true},
		"watch a pod's secret":                 {n1, "watch", "secrets", "", "default", "env-p1", true},
		"update a pod's secret":                {n1, "update", "secrets", "", "default", "env-p1", false},
		"another node's secret":                {n1, "get", "secrets", "", "default", "env-p2", false},
		"a secret in another namespace":        {n1, "get", "secrets", "", "kube-system", "env-p1", false},
		"all secrets":                          {n1, "list", "secrets", "", "", "", false},
		"all secrets of a namespace":           {n1, "list", "secrets", "", "default", "", false},
		"secrets by name in all namespaces":    {n1, "list", "secrets", "", "", "env-p1", false},
		"ConfigMaps by name in all namespaces": {n1, "watch", "configmaps", "", "", "conf", false},
		"a pod's ConfigMap":                    {n1, "get", "configmaps", "", "default", "conf", true},
		"a pod's claim":                        {n1, "get", "persistentvolumeclaims", "", "default", "disk", true},
		"claims":                               {n1, "list", "persistentvolumeclaims", "", "default", "", false},
		"a claim's status":                     {n1, "patch", "persistentvolumeclaims", "status", "default", "disk", true},
		"get a claim's status":                 {n1, "get", "persistentvolumeclaims", "status", "default", "disk", false},
		"another's volume":                     {n1, "get", "persistentvolumes", "", "", "v", false},
		"its volume":                           {n1, "get", "persistentvolumes", "", "", "vol", true},
		"its attachment":                       {n1, "get", "volumeattachments", "", "", "to-n1", true},
		"another's attachment":                 {n1, "get", "volumeattachments", "", "", "to-n2", false},
		"a missing attachment":                 {n1, "get", "volumeattachments", "", "", "v", false},
		"attachments":                          {n1, "list", "volumeattachments", "", "", "", false},
		"its volume's secret":                  {n1, "get", "secrets", "", "drivers", "stage-vol", true},
		"the controller's secret":              {n1, "get", "secrets", "", "drivers", "attach-vol", false},
		"another volume's secret":              {n1, "get", "secrets", "", "drivers", "stage-w", false},
		"a token of a pod's account":           {n1, "create", "serviceaccounts", "token", "default", "default", true},
		"a token of another account":           {n1, "create", "serviceaccounts", "token", "kube-system", "default", false},
		"a token without an account":           {n1, "create", "serviceaccounts", "token", "default", "", false},
		"pods":                                 {n1, "list", "pods", "", "", "", false},
		"its pod":                              {n1, "get", "pods", "", "default", "p1", true},
		"its mirror pod":                       {n1, "watch", "pods", "", "default", "mirror", true},
		"another's pod":                        {n1, "get", "pods", "", "default", "p2", false},
		"watch another's pod":                  {n1, "watch", "pods", "", "default", "p2", false},
		"a pod's status":                       {n1, "patch", "pods", "status", "default", "p1", true},
		"a pod's log":                          {n1, "get", "pods", "log", "default", "p1", false},
		"its node's status":                    {n1, "patch", "nodes", "status", "", "n1", true},
		"its node":                             {n1, "watch", "nodes", "", "", "n1", true},
		"nodes":                                {n1, "list", "nodes", "", "", "", false},
		"another node":                         {n1, "get", "nodes", "", "", "n2", false},
		"its lease":                            {n1, "update", "leases", "", "kube-node-lease", "n1", true},
		"a new lease":                          {n1, "create", "leases", "", "kube-node-lease", "", true},
		"another's lease":                      {n1, "get", "leases", "", "kube-node-lease", "n2", false},
		"a lease in another namespace":         {n1, "create", "leases", "", "kube-system", "", false},
		"its CSINode":                          {n1, "get", "csinodes", "", "", "n1", true},
		"another's CSINode":                    {n1, "delete", "csinodes", "", "", "n2", false},
		"a pod's resource claim":               {n1, "get", "resourceclaims", "", "default", "gpu", true},
		"another's resource claim":             {n1, "get", "resourceclaims", "", "default", "tpu", false},
		"update a resource claim":              {n1, "update", "resourceclaims", "", "default", "gpu", false},
		"resource claims":                      {n1, "list", "resourceclaims", "", "default", "", false},
		"its slice":                            {n1, "delete", "resourceslices", "", "", "own", true},
		"another's slice":                      {n1, "delete", "resourceslices", "", "", "other", false},
		"a slice that does not exist":          {n1, "delete", "resourceslices", "", "", "gone", false},
		"all slices":                           {n1, "list", "resourceslices", "", "", "", false},
		"delete its node":                      {n1, "delete", "nodes", "", "", "n1", false},
		"permitted to all users":               {n1, "create", "selfsubjectaccessreviews", "", "", "", false},
		"a node's name without the group": {auth.User{Name: "system:node:n1"}, "get", "pods", "", "default", "p1",
			false},
		"the group without a node's name": {auth.User{Name: "x", Groups: []string{auth.Nodes}}, "list", "pods", "", "",
			"", false},
	} {
		got, reason, err := z.Authorize(t.Context(), auth.Attributes{
			User: c.user, Verb: c.verb, Group: group[c.resource], Resource: c.resource, Subresource: c.sub, Namespace: c.ns,
			Name: c.object})
		if err != nil || got != c.want {
			t.Errorf("%s: %t %q, %v", name, got, reason, err)
		}
	}
	for selector, want := range map[string]bool{
		"spec.nodeName=n1": true, "spec.nodeName==n1,status.phase=Running": true,
		"spec.nodeName=n2": false, "spec.nodeName!=n1": false, "spec.nodeName=": false, "status.phase=Running": false,
	} {
		asked := fields.ParseSelectorOrDie(selector).Requirements()
		for _, verb := range []string{"list", "watch"} {
			got, reason, err := z.Authorize(t.Context(), auth.Attributes{User: n1, Verb: verb, Resource: "pods", Fields: asked})
			if err != nil || got != want {
				t.Errorf("%s of pods where %s: %t %q, %v", verb, selector, got, reason, err)
			}
		}
	}
	for selector, want := range map[string]bool{"spec.nodeName=n1": true, "spec.nodeName=n1,spec.driver=d": true,
		"spec.nodeName=n2": false, "spec.driver=d": false} {
		for _, verb := range []string{"list", "deletecollection"} {
			got, reason, err := z.Authorize(t.Context(), auth.Attributes{User: n1, Verb: verb, Group: "resource.k8s.io",
				Resource: "resourceslices", Fields: fields.ParseSelectorOrDie(selector).Requirements()})
			if err != nil || got != want {
				t.Errorf("%s of slices where %s: %t %q, %v", verb, selector, got, reason, err)
			}
		}
	}
	own := auth.Attributes{User: n1, Verb: "create", Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}
	if ok, reason, err := z.Authorize(t.Context(), own); !ok || err != nil {
		t.Errorf("permissions that RBAC grants to all users: %q, %v", reason, err)
	}
}
