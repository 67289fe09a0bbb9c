package admission_test

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

const (
	rootSpec       = `containers: [{name: c, image: i, securityContext: {privileged: true}}]`
	plainSpec      = `containers: [{name: c, image: i}]`
	restrictedSpec = `
securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]`
)

func levels(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["pod-security.kubernetes.io/"+pairs[i]] = pairs[i+1]
	}
	return m
}

func TestPodSecurity(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		labels        map[string]string
		spec          string
		refused, warn string
	}{
		"no labels": {nil, rootSpec, "", ""},
		"baseline, privileged": {levels("enforce", "baseline"), rootSpec,
			`pods "p" is forbidden: violates PodSecurity "baseline:latest": privileged (container "c" must not set ` +
				`securityContext.privileged=true)`, ""},
		"baseline, plain": {levels("enforce", "baseline"), plainSpec, "", ""},
		"restricted, plain": {levels("enforce", "restricted", "enforce-version", "v1.24"), plainSpec,
			`violates PodSecurity "restricted:v1.24": allowPrivilegeEscalation != false (container "c" must set ` +
				`securityContext.allowPrivilegeEscalation=false)`, ""},
		"restricted, good": {levels("enforce", "restricted"), restrictedSpec, "", ""},
		"warn alone": {levels("warn", "baseline"), rootSpec, "",
			`would violate PodSecurity "baseline:latest": privileged`},
		"enforce less than warn": {levels("enforce", "baseline", "warn", "restricted"), plainSpec, "",
			`would violate PodSecurity "restricted:latest"`},
		"audit does not warn": {levels("audit", "restricted"), rootSpec, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t, c.labels)
			ctx, warnings := collecting(t.Context())
			_, err := r.Create(ctx, parse(t, c.spec))
			wantRefusal(t, err, http.StatusForbidden, c.refused)
			if got := strings.Join(*warnings, "\n"); (c.warn == "") != (got == "") || !strings.Contains(got, c.warn) {
				t.Errorf("warned %q, want %q", got, c.warn)
			}
		})
	}
}

// A violating workload is admitted with a warning: only its pods are rejected.
func TestPodSecurityOfTemplates(t *testing.T) {
	t.Parallel()
	r := open(t, levels("enforce", "baseline"))
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "rs"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec: parse(t, rootSpec).Spec},
		},
	}
	ctx, warnings := collecting(t.Context())
	if _, err := r.Create(ctx, rs); err != nil {
		t.Fatal(err)
	}
	if len(*warnings) != 1 || !strings.HasPrefix((*warnings)[0],
		`would violate PodSecurity "baseline:latest": privileged`) {
		t.Errorf("warned %q", *warnings)
	}
}

func TestPodSecurityLabels(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	_, err := r.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bad", Labels: levels("enforce",
		"strict", "warn-version", "1.2")}})
	wantRefusal(t, err, http.StatusUnprocessableEntity,
		`metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, `+
			`baseline, restricted`)
	for _, name := range []string{"b", "a", "c"} {
		pod := parse(t, rootSpec)
		pod.Name = name
		mustCreate(t, r, pod)
	}
	fine := parse(t, restrictedSpec)
	mustCreate(t, r, fine)

	label := func(to map[string]string) []string {
		ctx, warnings := collecting(registry.DryRun(t.Context()))
		_, err := r.Update(ctx, client.Ref{Resource: client.Namespaces, Name: "tenant"},
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(*corev1.Namespace)
				next.Labels = to
				return next, nil
			})
		if err != nil {
			t.Error(err)
		}
		return *warnings
	}
	want := []string{
		`existing pods in namespace "tenant" violate the new PodSecurity enforce level "baseline:latest"`,
		`a (and 2 other pods): privileged`,
	}
	if got := label(levels("enforce", "baseline")); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("warned %q, want %q", got, want)
	}
	if got := label(levels("enforce", "privileged", "warn", "restricted")); len(got) != 0 {
		t.Errorf("warned %q", got)
	}
}

// An update without a new image is not checked again.
func TestPodSecurityOfUpdates(t *testing.T) {
	t.Parallel()
	r := open(t, nil)
	mustCreate(t, r, parse(t, rootSpec))
	if _, err := r.Update(t.Context(), client.Ref{Resource: client.Namespaces, Name: "tenant"},
		func(cur client.Object) (client.Object, error) {
			next := cur.DeepCopyObject().(*corev1.Namespace)
			next.Labels = levels("enforce", "baseline")
			return next, nil
		}); err != nil {
		t.Fatal(err)
	}
	for image, refused := range map[string]string{"i": "", "other": "violates PodSecurity"} {
		_, err := r.Update(t.Context(), client.Ref{Resource: client.Pods, Namespace: "tenant", Name: "p"},
			func(cur client.Object) (client.Object, error) {
				next := cur.DeepCopyObject().(*corev1.Pod)
				next.Labels = map[string]string{"new": image}
				next.Spec.Containers[0].Image = image
				return next, nil
			})
		wantRefusal(t, err, http.StatusForbidden, refused)
	}
}
