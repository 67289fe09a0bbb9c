// Package operator_test is the test suite of an operator, written as in kubebuilder's documentation. It does not depend
// on monopod: KUBEBUILDER_ASSETS is the folder of the control plane's programs.
package operator_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// bound is the timeout of each test.
const bound = 10 * time.Minute

var (
	greeting = schema.GroupVersionKind{Group: "samples.example.com", Version: "v1", Kind: "Greeting"}
	env      *envtest.Environment
	cfg      *rest.Config
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	log.SetLogger(logr.Discard())
	env = environment()
	var err error
	if cfg, err = env.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func environment() *envtest.Environment {
	return &envtest.Environment{
		CRDInstallOptions:     envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition()}},
		WebhookInstallOptions: webhooks(),
	}
}

// definition returns the definition that controller-gen generates for a kind with a required field and a status.
func definition() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "greetings.samples.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: greeting.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Greeting", ListKind: "GreetingList", Plural: "greetings",
				Singular: "greeting"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Required: []string{"spec"}, Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {Type: "object", Required: []string{"name"},
							Properties: map[string]apiextensionsv1.JSONSchemaProps{"name": text}},
						"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"said": text}},
					}}},
			}},
		},
	}
}

func newGreeting(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"name": "World"}}}
	u.SetGroupVersionKind(greeting)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func newClient(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	return ctx
}

// reconciler writes the text of a Greeting into its status and into a ConfigMap that the Greeting owns.
type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := newGreeting("", "")
	if err := r.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	name, _, _ := unstructured.NestedString(g.Object, "spec", "name")
	said := "Hello " + name
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
	if _, err := ctrl.CreateOrUpdate(ctx, r, cm, func() error {
		cm.Data = map[string]string{"said": said}
		return ctrl.SetControllerReference(g, cm, scheme.Scheme)
	}); err != nil {
		return ctrl.Result{}, err
	}
	if err := unstructured.SetNestedField(g.Object, said, "status", "said"); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.Status().Update(ctx, g)
}

func TestAManagerReconcilesACustomKind(t *testing.T) {
	ctx := within(t)
	manager, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(manager).For(newGreeting("", "")).Owns(&corev1.ConfigMap{}).Complete(
		reconciler{manager.GetClient()}); err != nil {
		t.Fatal(err)
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
	c, g := newClient(t, cfg), newGreeting("default", "world")
	if err := c.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	for said := ""; said != "Hello World"; said, _, _ = unstructured.NestedString(g.Object, "status", "said") {
		select {
		case <-ctx.Done():
			t.Fatal("the reconciler did not write the status: timeout")
		case <-time.After(5 * time.Millisecond):
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
			t.Fatal(err)
		}
	}
	cm := &corev1.ConfigMap{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(g), cm); err != nil || !metav1.IsControlledBy(cm, g) {
		t.Errorf("the ConfigMap: %v, %v", cm, err)
	}
	if err := c.Delete(ctx, g); err != nil {
		t.Error(err)
	}
}

func TestTheSchemaRefuses(t *testing.T) {
	g := newGreeting("default", "nameless")
	unstructured.RemoveNestedField(g.Object, "spec", "name")
	err := newClient(t, cfg).Create(within(t), g)
	if want := `Greeting.samples.example.com "nameless" is invalid: spec.name: Required value`; !apierrors.IsInvalid(
		err) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestNothingElseActs tests that no controllers and no node run: a namespace gets no service account and remains
// terminating, and a pod is not scheduled. A pod does not need a service account.
func TestNothingElseActs(t *testing.T) {
	ctx, c := within(t), newClient(t, cfg)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "quiet"}}
	if err := c.Create(ctx, ns); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "quiet", Name: "p"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/c"}}}}
	if err := c.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if pod.Status.Phase != corev1.PodPending || pod.Spec.NodeName != "" {
		t.Errorf("the pod is %s on %q", pod.Status.Phase, pod.Spec.NodeName)
	}
	nodes, accounts := &corev1.NodeList{}, &corev1.ServiceAccountList{}
	if err := c.List(ctx, nodes); err != nil || len(nodes.Items) != 0 {
		t.Errorf("%d nodes, %v", len(nodes.Items), err)
	}
	if err := c.List(ctx, accounts, client.InNamespace("quiet")); err != nil || len(accounts.Items) != 0 {
		t.Errorf("%d service accounts, %v", len(accounts.Items), err)
	}
	if err := c.Delete(ctx, ns); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, types.NamespacedName{Name: "quiet"}, ns); err != nil ||
		ns.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("the namespace is %s, %v", ns.Status.Phase, err)
	}
	pod.ObjectMeta = metav1.ObjectMeta{Namespace: "quiet", Name: "late"}
	if err := c.Create(ctx, pod); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("creation of a pod in the terminating namespace: %v", err)
	}
}

func TestUsersHaveTheRightsOfRBAC(t *testing.T) {
	user, err := env.AddUser(envtest.User{Name: "jane", Groups: []string{"testers"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = newClient(t, user.Config()).List(within(t), &corev1.ConfigMapList{}, client.InNamespace("default"))
	if want := `configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the ` +
		`namespace "default"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestKubectl(t *testing.T) {
	kubectl, err := env.ControlPlane.AddUser(envtest.User{Name: "root", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := kubectl.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := run.Run("get", "crd", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(stdout)
	problems, _ := io.ReadAll(stderr)
	if want := "customresourcedefinition.apiextensions.k8s.io/greetings.samples.example.com\n"; string(out) != want {
		t.Errorf("kubectl printed %s%s", out, problems)
	}
}

// BenchmarkStart measures Start with one definition, until the API is usable.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		e := environment()
		if _, err := e.Start(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := e.Stop(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
