package webhooks_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	reviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a registry with its webhooks and the warnings that a user gets.
type cluster struct {
	*registry.Registry
	t        testing.TB
	logs     *observer.ObservedLogs
	ctx      context.Context // of a user
	mu       sync.Mutex      // guards warnings
	warnings []string
}

func open(t testing.TB, dial func(ctx context.Context, network, address string) (net.Conn, error)) *cluster {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	core, logs := observer.New(zap.WarnLevel)
	c := &cluster{t: t, logs: logs, Registry: registry.New(s, resources, registry.Config{Log: zap.New(core), Dial: dial})}
	if err := c.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.ctx = auth.WithUser(t.Context(), auth.User{Name: "jane", Groups: []string{"developers"}})
	c.ctx = registry.WithWarnings(c.ctx, func(text string) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.warnings = append(c.warnings, text)
	})
	t.Cleanup(func() { // closes the connections to the webhooks
		for _, gvr := range []client.Ref{{Resource: client.MutatingWebhookConfigurations},
			{Resource: client.ValidatingWebhookConfigurations}} {
			all, _, _ := c.List(context.Background(), client.Selector{Resource: gvr.Resource})
			for _, obj := range all {
				_, _ = c.Delete(context.Background(), client.RefOf(obj), metav1.DeleteOptions{})
			}
		}
	})
	return c
}

// answer returns a webhook's response to a request.
type answer func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse

// serve starts a webhook, and returns its client configuration.
func serve(t testing.TB, handle http.HandlerFunc) admissionv1.WebhookClientConfig {
	t.Helper()
	s := httptest.NewTLSServer(handle)
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return admissionv1.WebhookClientConfig{URL: new(s.URL + "/hook"), CABundle: ca}
}

// reviewing returns a handler that answers as a correct webhook.
func reviewing(t *testing.T, do answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var review reviewv1.AdmissionReview
		data, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(data, &review)
		}
		if err != nil || review.Request == nil {
			t.Errorf("the request is not an AdmissionReview: %s %v", data, err)
			return
		}
		review.Response = do(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		_ = json.NewEncoder(w).Encode(review)
	}
}

func allow(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
	return &reviewv1.AdmissionResponse{Allowed: true}
}

// patch returns an answer with a JSON patch.
func patch(text string) *reviewv1.AdmissionResponse {
	return &reviewv1.AdmissionResponse{Allowed: true, Patch: []byte(text), PatchType: new(reviewv1.PatchTypeJSONPatch)}
}

// on returns a rule for all writes of a resource.
func on(group, version string, resources ...string) admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{"*"},
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}
}

// hook returns a webhook with the required fields.
func hook(name string, to admissionv1.WebhookClientConfig,
	rules ...admissionv1.RuleWithOperations) admissionv1.MutatingWebhook {
	return admissionv1.MutatingWebhook{
		Name: name, ClientConfig: to, Rules: rules, SideEffects: new(admissionv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"}}
}

func (c *cluster) mutating(name string, hooks ...admissionv1.MutatingWebhook) {
	c.t.Helper()
	c.create(c.t.Context(), &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: hooks})
}

func (c *cluster) validating(name string, hooks ...admissionv1.MutatingWebhook) {
	c.t.Helper()
	var all []admissionv1.ValidatingWebhook
	for _, h := range hooks {
		all = append(all, admissionv1.ValidatingWebhook{
			Name: h.Name, ClientConfig: h.ClientConfig, Rules: h.Rules, FailurePolicy: h.FailurePolicy,
			MatchPolicy:       h.MatchPolicy,
			NamespaceSelector: h.NamespaceSelector, ObjectSelector: h.ObjectSelector, SideEffects: h.SideEffects,
			TimeoutSeconds:          h.TimeoutSeconds,
			AdmissionReviewVersions: h.AdmissionReviewVersions, MatchConditions: h.MatchConditions})
	}
	c.create(c.t.Context(), &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: all})
}

func (c *cluster) create(ctx context.Context, obj client.Object) client.Object {
	c.t.Helper()
	out, err := c.Create(ctx, obj)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func config(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}
}

func TestDenial(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		says *metav1.Status
		want string
		code int32
	}{
		{"message", &metav1.Status{Message: "no", Code: 403, Reason: metav1.StatusReasonForbidden},
			`admission webhook "a.example.com" denied the request: no`, 403},
		{"reason", &metav1.Status{Reason: "Because"}, `admission webhook "a.example.com" denied the request: Because`, 400},
		{"nothing", nil, `admission webhook "a.example.com" denied the request without explanation`, 400},
		{"a code of a success", &metav1.Status{Code: 200, Status: metav1.StatusSuccess, Message: "x"},
			`admission webhook "a.example.com" denied the request: x`, 400},
		{"a code that HTTP does not have", &metav1.Status{Code: 100000, Message: "x"},
			`admission webhook "a.example.com" denied the request: x`, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := open(t, nil)
			k.validating("all", hook("a.example.com",
				serve(t, reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
					return &reviewv1.AdmissionResponse{Result: c.says, Warnings: []string{"think again"}}
				})), on("", "v1", "configmaps")))
			_, err := k.Create(k.ctx, config("x", nil))
			wantStatus(t, err, c.code, c.want)
			if status := apierrors.APIStatus(nil); err != nil {
				status, _ = err.(apierrors.APIStatus)
				if status.Status().Status != metav1.StatusFailure {
					t.Errorf("status %q", status.Status().Status)
				}
			}
			if strings.Join(k.warnings, ",") != "think again" {
				t.Errorf("warnings %q", k.warnings)
			}
			if _, err := k.Create(k.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "x"}}); err != nil {
				t.Errorf("a kind without a rule: %v", err)
			}
		})
	}
}

func wantStatus(t *testing.T, err error, code int32, text string) {
	t.Helper()
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		t.Fatalf("error %v, want %d %q", err, code, text)
	}
	if got := status.Status(); got.Code != code || !strings.Contains(got.Message, text) {
		t.Errorf("error %d %q, want %d %q", got.Code, got.Message, code, text)
	}
}

// The webhook gets a complete AdmissionReview.
func TestAdmissionReview(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	var asked []*reviewv1.AdmissionRequest
	keep := reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
		asked = append(asked, r)
		return &reviewv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"a": "b"}}
	})
	k.mutating("m", hook("m.example.com", serve(t, keep), on("*", "*", "*/*")))
	k.create(k.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "x-"}})
	r := asked[0]
	if r.Operation != "CREATE" || r.Name != "" || r.Namespace != "default" || r.UserInfo.Username != "jane" ||
		r.Kind.Kind != "ConfigMap" ||
		r.Resource.Resource != "configmaps" || r.RequestResource.Version != "v1" || len(r.OldObject.Raw) != 0 || *r.DryRun {
		t.Errorf("asked %+v", r)
	}
	var sent corev1.ConfigMap
	if err := json.Unmarshal(r.Object.Raw, &sent); err != nil || sent.Name != "" || sent.UID != "" ||
		sent.Kind != "ConfigMap" {
		t.Errorf("sent %s: %v", r.Object.Raw, err)
	}
	if !strings.Contains(string(r.Options.Raw), `"kind":"CreateOptions"`) {
		t.Errorf("options %s", r.Options.Raw)
	}
	made := k.create(registry.DryRun(k.ctx), config("y", nil))
	if !*asked[1].DryRun || asked[1].Name != "y" || made.GetName() != "y" {
		t.Errorf("dry run: asked %+v", asked[1])
	}
	k.create(k.ctx, config("y", nil))
	if _, err := k.Delete(k.ctx, client.RefOf(config("y", nil)), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// The pods of a StatefulSet have both a name and a generateName.
	k.create(k.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x-0",
		GenerateName: "x-"}})
	if err := json.Unmarshal(asked[4].Object.Raw, &sent); err != nil || asked[4].Name != "x-0" || sent.Name != "x-0" {
		t.Errorf("asked about %q, sent %s: %v", asked[4].Name, asked[4].Object.Raw, err)
	}
	if r := asked[3]; r.Operation != "DELETE" || len(r.Object.Raw) != 0 || len(r.OldObject.Raw) == 0 ||
		!strings.Contains(string(r.Options.Raw), `"kind":"DeleteOptions"`) {
		t.Errorf("asked %+v", r)
	}
}

func TestMutation(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	var order []string
	add := func(name string) admissionv1.MutatingWebhook {
		return hook(name+".example.com",
			serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
				var is corev1.ConfigMap
				_ = json.Unmarshal(r.Object.Raw, &is)
				order = append(order, name)
				if is.Data[name] != "" {
					return allow(r)
				}
				return patch(`[{"op":"add","path":"/data/` + name +
					`","value":"set"},{"op":"add","path":"/metadata/uid","value":"evil"}]`)
			})), on("", "v1", "configmaps"))
	}
	first, second, last := add("first"), add("second"), add("last")
	first.ReinvocationPolicy = new(admissionv1.IfNeededReinvocationPolicy)
	k.mutating("b", last)
	k.mutating("a", first, second)
	k.validating("v", hook("v.example.com",
		serve(t, reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			order = append(order, "validating")
			if !strings.Contains(string(r.Object.Raw), `"last":"set"`) || strings.Contains(string(r.Object.Raw),
				`"uid":"evil"`) {
				t.Errorf("validated %s", r.Object.Raw)
			}
			return allow(r)
		})), on("", "v1", "configmaps")))
	made := k.create(k.ctx, config("x", map[string]string{"mine": "1"})).(*corev1.ConfigMap)
	if len(made.Data) != 4 || made.UID == "evil" {
		t.Errorf("stored %v %v", made.UID, made.Data)
	}
	if got := strings.Join(order, " "); got != "first second last first validating" {
		t.Errorf("order %q", got)
	}
}

// A dry run fails if a webhook has side effects. Writes of webhook configurations call no webhook.
func TestExemptions(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	down := admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	k.validating("all", hook("down.example.com", down, on("*", "*", "*/*")))
	if _, err := k.Create(k.ctx, config("x", nil)); err == nil {
		t.Error("a request passed a webhook that is down")
	} else {
		wantStatus(t, err, 500, `Internal error occurred: failed calling webhook "down.example.com": failed to call `+
			`webhook: Post "https://127.0.0.1:1/?timeout=10s":`)
	}
	own := t.Context()
	k.create(own, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	k.create(own, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default"}})
	k.create(own, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "x"}})
	if _, err := k.Create(own, config("x", nil)); err == nil {
		t.Error("a controller's object passed a webhook that is down")
	}
	if n := k.logs.FilterMessage("failed calling an admission webhook").FilterField(zap.String("webhook",
		"down.example.com")).Len(); n != 1 {
		t.Errorf("%d messages about two failures at once", n)
	}
	if _, err := k.Delete(k.ctx, client.Ref{Resource: client.ValidatingWebhookConfigurations, Name: "all"},
		metav1.DeleteOptions{}); err != nil {
		t.Fatalf("the configuration cannot be deleted: %v", err)
	}
	k.create(k.ctx, config("x", nil))
}

// A deletion by this process succeeds without a webhook that is down, but not if the webhook denies it.
func TestOwnDeletion(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	k.create(k.ctx, config("a", nil))
	k.create(k.ctx, config("b", nil))
	k.validating("down", hook("down.example.com", admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
		on("", "v1", "configmaps")))
	if _, err := k.Delete(k.ctx, client.RefOf(config("a", nil)), metav1.DeleteOptions{}); err == nil {
		t.Error("a user's deletion passed")
	}
	if _, err := k.Delete(t.Context(), client.RefOf(config("a", nil)), metav1.DeleteOptions{}); err != nil {
		t.Errorf("a deletion by this process: %v", err)
	}
	k.validating("no", hook("no.example.com",
		serve(t, reviewing(t, func(*reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
			return &reviewv1.AdmissionResponse{}
		})), on("", "v1", "configmaps")))
	if _, err := k.Delete(t.Context(), client.RefOf(config("b", nil)), metav1.DeleteOptions{}); err == nil {
		t.Error("a deletion by this process passed a webhook that denies it")
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	k := open(t, nil)
	h := hook("a.example.com", serve(t, reviewing(t, allow)), on("", "v1", "configmaps"))
	h.SideEffects = new(admissionv1.SideEffectClassNoneOnDryRun)
	k.validating("a", h)
	k.create(registry.DryRun(k.ctx), config("x", nil))
}

// A webhook behind a Service is called at one of its endpoints, under the Service's name.
func TestService(t *testing.T) {
	t.Parallel()
	var dialed string
	var server *httptest.Server
	k := open(t, func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	})
	server = httptest.NewTLSServer(reviewing(t, func(r *reviewv1.AdmissionRequest) *reviewv1.AdmissionResponse {
		return patch(`[{"op":"add","path":"/data","value":{"by":"service"}}]`)
	}))
	t.Cleanup(server.Close)
	to := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "default", Name: "hooks",
		Path: new("/mutate")}}
	to.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	k.mutating("m", hook("m.example.com", to, on("", "v1", "configmaps")))
	_, err := k.Create(k.ctx, config("x", nil))
	wantStatus(t, err, 500, `failed calling webhook "m.example.com": failed to call webhook: Post `+
		`"https://hooks.default.svc:443/mutate?timeout=10s": service "hooks" not found`)
	k.create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hooks"},
		Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 443}}}})
	_, err = k.Create(k.ctx, config("x", nil))
	wantStatus(t, err, 500, `no endpoints available for service "hooks"`)
	k.create(t.Context(), &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hooks"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3"}}, Ports: []corev1.EndpointPort{{Port: 9443}}}}})
	_, err = k.Create(k.ctx, config("x", nil))
	wantStatus(t, err, 500, "hooks.default.svc") // the certificate is for another name
	if dialed != "10.1.2.3:9443" {
		t.Errorf("dialed %q", dialed)
	}
}
