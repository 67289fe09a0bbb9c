package admission_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/admission/plugins"
	"monopod/store"
)

// open returns a registry with the system namespaces, and "tenant" with an account of each kind.
func open(t *testing.T, labels map[string]string) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustCreate(t, r,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant", Labels: labels}},
		account("default"),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "puller"},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "quiet"},
			AutomountServiceAccountToken: new(false)},
	)
	return r
}

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name}}
}

func mustCreate(t *testing.T, r *registry.Registry, objs ...client.Object) {
	t.Helper()
	for _, obj := range objs {
		if _, err := r.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
}

// parse decodes the spec of a pod "p" in "tenant".
func parse(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "web:1"}}
	}
	return pod
}

// collecting returns a context that collects the warnings of a request.
func collecting(ctx context.Context) (context.Context, *[]string) {
	var all []string
	return registry.WithWarnings(ctx, func(text string) {
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}), &all
}

// wantRefusal checks the code and the message of a rejection; an empty text expects none.
func wantRefusal(t *testing.T, err error, code int32, text string) {
	t.Helper()
	if text == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got  %v\nwant %s", err, text)
		return
	}
	if got := err.(apierrors.APIStatus).Status().Code; got != code {
		t.Errorf("code %d, want %d", got, code)
	}
}

func TestNamespaceLifecycle(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		_, err := r.Delete(t.Context(), client.Ref{Resource: client.Namespaces, Name: name}, metav1.DeleteOptions{})
		wantRefusal(t, err, http.StatusForbidden, `namespaces "`+name+`" is forbidden: this namespace may not be deleted`)
	}
	if _, err := r.Delete(t.Context(), client.Ref{Resource: client.Namespaces, Name: "tenant"},
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := r.Create(t.Context(), account("late"))
	wantRefusal(t, err, http.StatusForbidden,
		`serviceaccounts "late" is forbidden: unable to create new content in namespace tenant because it is being terminated`)
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("the error lacks the cause NamespaceTerminating: %v", err)
	}
	nowhere := account("a")
	nowhere.Namespace = "nowhere"
	_, err = r.Create(t.Context(), nowhere)
	wantRefusal(t, err, http.StatusNotFound, `namespaces "nowhere" not found`)
}

// TestConfiguredTolerationSeconds checks that the flags set the default tolerationSeconds.
func TestConfiguredTolerationSeconds(t *testing.T) {
	t.Parallel()
	for want, seconds := range map[string]plugins.TolerationSeconds{"300 300": {},
		"7 0": {NotReady: new(int64(7)), Unreachable: new(int64(0))}} {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		t.Cleanup(func() { s.Close() })
		r := registry.New(s, resources, registry.Config{Tolerations: seconds})
		if err := r.Bootstrap(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustCreate(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}, account("default"))
		stored, err := r.Create(t.Context(), parse(t, `{}`))
		if err != nil {
			t.Fatal(err)
		}
		list := stored.(*corev1.Pod).Spec.Tolerations
		if got := fmt.Sprint(*list[0].TolerationSeconds, *list[1].TolerationSeconds); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestDefaultTolerationSeconds(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	const both = "node.kubernetes.io/not-ready node.kubernetes.io/unreachable"
	for spec, want := range map[string]string{
		`{}`:                                both,
		`tolerations: [{operator: Exists}]`: "",
		`tolerations: [{operator: Exists, effect: NoSchedule}]`:                                        " " + both,
		`tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}]`:      both,
		`tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, tolerationSeconds: 5}]`: "",
	} {
		pod := parse(t, spec)
		if strings.Contains(spec, "tolerationSeconds") { // tolerationSeconds needs an effect
			pod.Spec.Tolerations[0].Effect = corev1.TaintEffectNoExecute
			want = "node.kubernetes.io/unreachable node.kubernetes.io/not-ready"
		}
		stored, err := r.Create(registry.DryRun(t.Context()), pod)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		var got []string
		for _, tol := range stored.(*corev1.Pod).Spec.Tolerations {
			got = append(got, tol.Key)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: tolerates %v, want %s", spec, got, want)
		}
	}
}

// A manifest without the fields that admission set does not change the pod.
func TestUpdateDefaultsLikeCreation(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, parse(t, `{}`))
	ref := client.Ref{Resource: client.Pods, Namespace: "tenant", Name: "p"}
	stored, err := r.Update(t.Context(), ref, func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*corev1.Pod)
		next.Spec.Tolerations, next.Spec.Priority, next.Spec.PreemptionPolicy = nil, nil, nil
		next.Labels = map[string]string{"a": "b"}
		return next, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := stored.(*corev1.Pod)
	if len(pod.Spec.Tolerations) != 2 || pod.Spec.Priority == nil || pod.Generation != 1 {
		t.Errorf("generation %d, %+v", pod.Generation, pod.Spec)
	}
}

func TestServiceAccount(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	const mirror = "mirror"
	for name, c := range map[string]struct{ spec, kind, refused string }{
		"none named": {spec: `{}`},
		"one named":  {spec: `serviceAccountName: quiet`},
		"a missing one, by the deprecated field": {spec: `serviceAccount: gone`,
			refused: `pods "p" is forbidden: error looking up service account tenant/gone: serviceaccount "gone" not found`},
		"mirror pod": {spec: `nodeName: n1`, kind: mirror},
		"mirror pod with an account": {spec: "nodeName: n1\nserviceAccountName: default", kind: mirror,
			refused: "a mirror pod may not reference service accounts"},
		"mirror pod with a secret": {spec: "nodeName: n1\nvolumes: [{name: s, secret: {secretName: s}}]", kind: mirror,
			refused: "a mirror pod may not reference secrets"},
		"mirror pod with a secret in its environment": {
			spec: "nodeName: n1\ncontainers: [{name: c, image: i, envFrom: [{secretRef: {name: s}}]}]", kind: mirror,
			refused: "a mirror pod may not reference secrets"},
		"mirror pod with a token": {
			spec: "nodeName: n1\nvolumes: [{name: s, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", kind: mirror,
			refused: "a mirror pod may not use ServiceAccountToken volume projections"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := parse(t, c.spec)
			if c.kind == mirror {
				pod.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			}
			_, err := r.Create(registry.DryRun(t.Context()), pod)
			wantRefusal(t, err, http.StatusForbidden, c.refused)
		})
	}
	puller := parse(t, `serviceAccountName: puller`)
	puller.Name = "puller"
	stored, err := r.Create(t.Context(), puller)
	if err != nil {
		t.Fatal(err)
	}
	if got := stored.(*corev1.Pod).Spec.ImagePullSecrets; len(got) != 1 || got[0].Name != "registry" {
		t.Errorf("pull secrets %v", got)
	}
}

// A new pod waits until a controller has created the default account of its namespace.
func TestServiceAccountOfNewNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, nil)
		mustCreate(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fresh"}})
		pod := parse(t, `{}`)
		pod.Namespace = "fresh"
		_, err := r.Create(t.Context(), pod.DeepCopy())
		wantRefusal(t, err, http.StatusForbidden,
			`error looking up service account fresh/default: serviceaccount "default" not found`)
		go func() {
			time.Sleep(500 * time.Millisecond)
			made := account("default")
			made.Namespace = "fresh"
			_, _ = r.Create(context.Background(), made)
		}()
		stored, err := r.Create(t.Context(), pod)
		if err != nil || stored.(*corev1.Pod).Spec.ServiceAccountName != "default" {
			t.Errorf("%v, %v", stored, err)
		}
	})
}

// The credentials' volume is mounted in every container without a mount at its
// path, and in none if the pod or the account disables it.
func TestCredentialsAreMounted(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	const at = "/var/run/secrets/kubernetes.io/serviceaccount"
	for name, c := range map[string]struct {
		spec    string
		volumes int
		mounted string
	}{
		"all containers": {"initContainers: [{name: i, image: x}]\n" +
			"containers: [{name: a, image: x}, {name: b, image: x}]", 1, "i a b"},
		"disabled by the pod":     {`automountServiceAccountToken: false`, 0, ""},
		"disabled by the account": {`serviceAccountName: quiet`, 0, ""},
		"enabled by the pod":      {"serviceAccountName: quiet\nautomountServiceAccountToken: true", 1, "c"},
		"a mount at the same path": {"volumes: [{name: mine, emptyDir: {}}]\n" +
			"containers: [{name: a, image: x, volumeMounts: [{name: mine, mountPath: " + at + "}]}, {name: b, image: x}]", 2,
			"b"},
		"a mount at the same path in all": {"volumes: [{name: mine, emptyDir: {}}]\n" +
			"containers: [{name: a, image: x, volumeMounts: [{name: mine, mountPath: " + at + "}]}]", 1, ""},
		"a volume of this name": {"volumes: [{name: kube-api-access-mine, emptyDir: {}}]\n" +
			"containers: [{name: a, image: x}]", 1, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stored, err := r.Create(registry.DryRun(t.Context()), parse(t, c.spec))
			if err != nil {
				t.Fatal(err)
			}
			spec := &stored.(*corev1.Pod).Spec
			var mounted []string
			for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
				for i := range list {
					for _, m := range list[i].VolumeMounts {
						if m.MountPath == at && m.ReadOnly && strings.HasPrefix(m.Name, "kube-api-access-") {
							mounted = append(mounted, list[i].Name)
						}
					}
				}
			}
			if got := strings.Join(mounted, " "); got != c.mounted || len(spec.Volumes) != c.volumes {
				t.Errorf("mounted in %q, %d volumes: %+v", got, len(spec.Volumes), spec.Volumes)
			}
		})
	}
}
