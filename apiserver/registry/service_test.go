package registry_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
)

func service(name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

// Concurrent writers get different addresses and ports, also if they update the same Service.
func TestConcurrentServices(t *testing.T) {
	t.Parallel()
	r := open(t)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			s := service(fmt.Sprintf("s%d", i%40), func(spec *corev1.ServiceSpec) { spec.Type = corev1.ServiceTypeNodePort })
			if _, err := r.Create(t.Context(), s); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 40 {
		wg.Go(func() {
			_, err := client.Update(t.Context(), r, service(fmt.Sprintf("s%d", i%20), nil), "", func(s *corev1.Service) error {
				port := corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1000 + i)}
				s.Spec.Ports[0].Name = "first"
				s.Spec.Ports = append(s.Spec.Ports, port)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	services, err := client.List[*corev1.Service](t.Context(), r, client.Selector{Namespace: "default"})
	if err != nil {
		t.Fatal(err)
	}
	ips, ports := map[string]bool{}, map[int32]bool{}
	for _, s := range services {
		ips[s.Spec.ClusterIP] = true
		for _, p := range s.Spec.Ports {
			ports[p.NodePort] = true
		}
	}
	if len(services) != 40 || len(ips) != 40 || len(ports) != 80 || ports[0] {
		t.Errorf("%d Services have %d addresses and %d node ports", len(services), len(ips), len(ports))
	}
}

// A rejected write, a dry run and a deletion release the address.
func TestServicesReleaseAddresses(t *testing.T) {
	t.Parallel()
	r := open(t)
	at := func(spec *corev1.ServiceSpec) { spec.ClusterIP = "10.96.0.77" }
	if _, err := r.Create(registry.DryRun(t.Context()), service("a", at)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Create(t.Context(), service("Bad_Name", at)); !apierrors.IsInvalid(err) {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.Create(t.Context(), service("a", at)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Create(t.Context(), service("b", at)); !apierrors.IsInvalid(err) {
			t.Errorf("an address was allocated twice: %v", err)
		}
		if _, err := r.Delete(t.Context(), client.RefOf(service("a", nil)), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDefaultIngressClass(t *testing.T) {
	t.Parallel()
	r := open(t)
	ingress := func(name string, change func(*networkingv1.Ingress)) *networkingv1.Ingress {
		i := &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.example.com"}}},
		}
		if change != nil {
			change(i)
		}
		return i
	}
	class := func(obj *networkingv1.Ingress) string {
		t.Helper()
		stored, err := r.Create(t.Context(), obj)
		if err != nil {
			t.Fatal(err)
		}
		if name := stored.(*networkingv1.Ingress).Spec.IngressClassName; name != nil {
			return *name
		}
		return ""
	}
	if got := class(ingress("before", nil)); got != "" {
		t.Errorf("got class %q where there is none", got)
	}
	for _, name := range []string{"b", "a", "plain"} {
		c := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: networkingv1.IngressClassSpec{Controller: "example.com/c"}}
		if name != "plain" {
			c.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
		}
		if _, err := r.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if got := class(ingress("after", nil)); got != "a" && got != "b" { // the newest; of the same second, the first by name
		t.Errorf("got class %q", got)
	}
	if got := class(
		ingress("own", func(i *networkingv1.Ingress) { i.Spec.IngressClassName = new("plain") })); got != "plain" {
		t.Errorf("got class %q", got)
	}
	if got := class(
		ingress("old",
			func(i *networkingv1.Ingress) { i.Annotations = map[string]string{"kubernetes.io/ingress.class": "x"} })); got != "" {
		t.Errorf("got class %q with the annotation", got)
	}
}

func TestEventsOfBothVersions(t *testing.T) {
	t.Parallel()
	r := open(t)
	at := metav1.NewMicroTime(metav1.Now().Time)
	old := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "e"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default", Kind: "Pod", Name: "p"},
		Reason:         "why", Message: "text", Type: "Normal", EventTime: at, ReportingController: "example.com/c",
		ReportingInstance: "i", Action: "a",
	}
	if _, err := r.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	ref := client.Ref{Resource: client.NewEvents, Namespace: "default", Name: "e"}
	if shown, err := r.Get(t.Context(), ref); err != nil ||
		shown.GetObjectKind().GroupVersionKind().Group != "events.k8s.io" {
		t.Fatalf("got %+v, %v", shown, err)
	}
}
