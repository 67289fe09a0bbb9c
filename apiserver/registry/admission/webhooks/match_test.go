package webhooks_test

import (
	"slices"
	"strings"
	"testing"

	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

func selector(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// Rules, selectors and conditions determine the requests that a webhook gets.
func TestMatching(t *testing.T) {
	t.Parallel()
	all := on("*", "*", "*")
	rule := func(change func(*admissionv1.RuleWithOperations)) admissionv1.RuleWithOperations {
		r := on("*", "*", "*")
		change(&r)
		return r
	}
	conditions := func(text ...string) func(*admissionv1.MutatingWebhook) {
		return func(h *admissionv1.MutatingWebhook) {
			for i, e := range text {
				h.MatchConditions = append(h.MatchConditions,
					admissionv1.MatchCondition{Name: string(rune('a' + i)), Expression: e})
			}
		}
	}
	for _, c := range []struct {
		name   string
		rule   admissionv1.RuleWithOperations
		change func(*admissionv1.MutatingWebhook)
		want   string // the webhooks that are called, or "error" for a rejected request
	}{
		{"everything", all, nil, "ConfigMap Deployment HorizontalPodAutoscaler Namespace"},
		{"a group", on("apps", "*", "*"), nil, "Deployment"},
		{"the core group", on("", "v1", "*"), nil, "ConfigMap Namespace"},
		{"another version", on("apps", "v1beta1", "*"), nil, ""},
		{"an equivalent version", on("autoscaling", "v2", "*"), nil, "HorizontalPodAutoscaler"},
		{"only the exact version", on("autoscaling", "v2", "*"),
			func(h *admissionv1.MutatingWebhook) { h.MatchPolicy = new(admissionv1.Exact) }, ""},
		{"only subresources", on("*", "*", "*/status"), nil, ""},
		{"an operation",
			rule(func(r *admissionv1.RuleWithOperations) { r.Operations = []admissionv1.OperationType{"UPDATE"} }), nil, ""},
		{"the cluster's", rule(func(r *admissionv1.RuleWithOperations) { r.Scope = new(admissionv1.ClusterScope) }), nil,
			"Namespace"},
		{"the namespaces'", rule(func(r *admissionv1.RuleWithOperations) { r.Scope = new(admissionv1.NamespacedScope) }), nil,
			"ConfigMap Deployment HorizontalPodAutoscaler"},
		{"labels", all, func(h *admissionv1.MutatingWebhook) { h.ObjectSelector = selector("kind", "cm") }, "ConfigMap"},
		{"labels of the namespace", all, func(h *admissionv1.MutatingWebhook) { h.NamespaceSelector = selector("team", "a") },
			"Namespace"},
		{"name of the namespace", all, func(h *admissionv1.MutatingWebhook) {
			h.NamespaceSelector = selector("kubernetes.io/metadata.name", "default")
		}, "ConfigMap Deployment HorizontalPodAutoscaler"},
		{"a condition", all,
			conditions(`object.metadata.name == 'x'`, `request.userInfo.username == 'jane'`, `oldObject == null`),
			"ConfigMap Deployment HorizontalPodAutoscaler"},
		{"a condition that is false", all,
			conditions(`request.kind.kind == 'ConfigMap'`, `authorizer.group('').resource('pods').check('get').allowed()`),
			"ConfigMap"},
		{"a condition that fails", on("", "v1", "configmaps"), conditions(`object.data.none == 'x'`), "error"},
		{"a condition that may fail", on("", "v1", "configmaps"), func(h *admissionv1.MutatingWebhook) {
			conditions(`object.data.none == 'x'`)(h)
			h.FailurePolicy = new(admissionv1.Ignore)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := open(t, nil)
			var got []string
			h := hook("h.example.com", serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
				got = append(got, r.RequestKind.Kind)
				if r.Kind.Kind == "HorizontalPodAutoscaler" && c.rule.APIVersions[0] != "*" &&
					r.Kind.Version != c.rule.APIVersions[0] {
					t.Errorf("the object is of version %s", r.Kind.Version)
				}
				return allow(r)
			})), c.rule)
			if c.change != nil {
				c.change(&h)
			}
			k.validating("h", h)
			cm := config("x", nil)
			cm.Labels = map[string]string{"kind": "cm"}
			for _, obj := range []client.Object{cm, deployment(), autoscaler(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"team": "a"}}}} {
				if _, err := k.Create(k.ctx, obj); err != nil {
					got = append(got, "error")
				}
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": "x"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
}

func autoscaler() *autoscalingv1.HorizontalPodAutoscaler {
	return &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"},
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment",
				Name: "x"}}}
}

// A patch in another version changes the object that is stored; a scale is a separate request.
func TestVersionsAndScale(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	var kinds []string
	k.mutating("m", hook("m.example.com",
		serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			kinds = append(kinds, r.Kind.Kind+"/"+r.SubResource)
			if r.Kind.Kind == "Scale" {
				return patch(`[{"op":"replace","path":"/spec/replicas","value":5}]`)
			}
			return patch(`[{"op":"replace","path":"/spec/maxReplicas","value":7}]`)
		})), on("autoscaling", "v2", "horizontalpodautoscalers"), on("apps", "v1", "deployments/scale", "deployments")))
	made := k.create(k.ctx, autoscaler()).(*autoscalingv1.HorizontalPodAutoscaler)
	if made.Spec.MaxReplicas != 7 || made.Kind != "HorizontalPodAutoscaler" {
		t.Errorf("stored %+v", made)
	}
	d := deployment()
	kinds = nil
	if _, err := k.Delete(k.ctx, client.Ref{Resource: client.MutatingWebhookConfigurations, Name: "m"},
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	k.create(k.ctx, deployment())
	k.mutating("scale", hook("s.example.com",
		serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			kinds = append(kinds, r.Kind.Kind+"/"+r.SubResource)
			return patch(`[{"op":"replace","path":"/spec/replicas","value":5}]`)
		})), on("apps", "v1", "deployments/scale", "deployments")))
	out, err := k.Update(k.ctx, client.RefOf(d).Sub("scale"), func(cur client.Object) (client.Object, error) {
		next := cur.DeepCopyObject().(*autoscalingv1.Scale)
		next.Spec.Replicas = 3
		return next, nil
	})
	if err != nil || out.(*autoscalingv1.Scale).Spec.Replicas != 5 || strings.Join(kinds, " ") != "Scale/scale" {
		t.Errorf("scale %v, %v, asked %q", out, err, kinds)
	}
}
