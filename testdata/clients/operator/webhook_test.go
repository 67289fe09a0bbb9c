package operator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// checked is the label that the webhooks select.
const checked = "checked"

// webhooks returns the configurations that controller-gen generates. envtest replaces the Service by a URL and adds the
// CA.
func webhooks() envtest.WebhookInstallOptions {
	service := func(path string) admissionv1.WebhookClientConfig {
		return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "system", Name: "webhook",
			Path: &path}}
	}
	rules := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{APIGroups: []string{greeting.Group}, APIVersions: []string{"v1"},
			Resources: []string{"greetings"}},
	}}
	only := &metav1.LabelSelector{MatchLabels: map[string]string{checked: "yes"}}
	none := admissionv1.SideEffectClassNone
	return envtest.WebhookInstallOptions{
		MutatingWebhooks: []*admissionv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
			Webhooks: []admissionv1.MutatingWebhook{{Name: "mutate.samples.example.com", ClientConfig: service("/mutate"),
				Rules: rules, ObjectSelector: only,
				SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
		}},
		ValidatingWebhooks: []*admissionv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "validating"},
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "validate.samples.example.com", ClientConfig: service("/validate"),
				Rules: rules, ObjectSelector: only,
				SideEffects: &none, AdmissionReviewVersions: []string{"v1"}}},
		}},
	}
}

func decode(req admission.Request) (*unstructured.Unstructured, string, error) {
	g := &unstructured.Unstructured{}
	err := json.Unmarshal(req.Object.Raw, g)
	name, _, _ := unstructured.NestedString(g.Object, "spec", "name")
	return g, name, err
}

// mutate adds a name to a Greeting without one.
func mutate(_ context.Context, req admission.Request) admission.Response {
	g, name, err := decode(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if name != "" {
		return admission.Allowed("")
	}
	if err := unstructured.SetNestedField(g.Object, "Nobody", "spec", "name"); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	changed, err := json.Marshal(g)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

// validate denies names in upper case.
func validate(_ context.Context, req admission.Request) admission.Response {
	_, name, err := decode(req)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if name == strings.ToUpper(name) {
		return admission.Denied("do not shout")
	}
	return admission.Allowed("").WithWarnings("greeted")
}

func TestWebhooks(t *testing.T) {
	ctx, c := within(t), newClient(t, cfg)
	to := env.WebhookInstallOptions
	manager, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: to.LocalServingHost, Port: to.LocalServingPort,
			CertDir: to.LocalServingCertDir})})
	if err != nil {
		t.Fatal(err)
	}
	hooks := manager.GetWebhookServer()
	hooks.Register("/mutate", &webhook.Admission{Handler: admission.HandlerFunc(mutate)})
	hooks.Register("/validate", &webhook.Admission{Handler: admission.HandlerFunc(validate)})

	away := newGreeting("default", "away")
	away.SetLabels(map[string]string{checked: "yes"})
	if err := c.Create(ctx, away); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(),
		`failed calling webhook "mutate.samples.example.com"`) {
		t.Errorf("before the webhook server started: %v", err)
	}

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for hooks.StartedChecker()(nil) != nil {
		select {
		case <-ctx.Done():
			t.Fatal("the webhook server did not start: timeout")
		case <-time.After(5 * time.Millisecond):
		}
	}

	g := newGreeting("default", "completed")
	g.SetLabels(map[string]string{checked: "yes"})
	unstructured.RemoveNestedField(g.Object, "spec", "name")
	if err := c.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	if name, _, _ := unstructured.NestedString(g.Object, "spec", "name"); name != "Nobody" {
		t.Errorf("the name is %q", name)
	}
	if err := unstructured.SetNestedField(g.Object, "ALL", "spec", "name"); err != nil {
		t.Fatal(err)
	}
	err = c.Update(ctx, g)
	if want := `admission webhook "validate.samples.example.com" denied the request: do not shout`; !apierrors.IsForbidden(
		err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := c.Delete(ctx, client.Object(g)); err != nil {
		t.Error(err)
	}
}
