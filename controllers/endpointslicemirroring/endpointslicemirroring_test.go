package endpointslicemirroring

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func service(selector map[string]string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Selector: selector, Ports: []corev1.ServicePort{{Port: 5432}}},
	}
}

func endpoints(change ...func(*corev1.Endpoints)) *corev1.Endpoints {
	e := &corev1.Endpoints{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: "10.0.0.1"}}, NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.0.0.2",
				Hostname: "second"}},
			Ports: []corev1.EndpointPort{{Name: "sql", Port: 5432, Protocol: corev1.ProtocolTCP}},
		}},
	}
	for _, f := range change {
		f(e)
	}
	return e
}

// shown formats the mirrored slices.
func shown(api *apitest.API) []string {
	var out []string
	for _, s := range apitest.List[*discoveryv1.EndpointSlice](api, "default") {
		text := string(s.AddressType)
		for _, p := range s.Ports {
			text += fmt.Sprintf(" %s:%d", *p.Name, *p.Port)
		}
		var all []string
		for _, e := range s.Endpoints {
			one := strings.Join(e.Addresses, ",")
			if !*e.Conditions.Ready {
				one = "!" + one
			}
			if e.Hostname != nil {
				one += "=" + *e.Hostname
			}
			all = append(all, one)
		}
		slices.Sort(all)
		out = append(out, text+" "+strings.Join(all, " "))
	}
	slices.Sort(out)
	return out
}

func TestMirror(t *testing.T) {
	t.Parallel()
	usual := []string{"IPv4 sql:5432 !10.0.0.2=second 10.0.0.1"}
	change := func(f func(*corev1.Endpoints)) func(*apitest.API) {
		return func(api *apitest.API) { apitest.Change(api, endpoints(), "", f) }
	}
	for _, c := range []struct {
		name      string
		service   *corev1.Service
		endpoints *corev1.Endpoints
		do        func(api *apitest.API)
		want      []string
	}{
		{"without a selector", service(nil), endpoints(), nil, usual},
		{"with a selector", service(map[string]string{"a": "b"}), endpoints(), nil, nil},
		{"with the label", service(nil),
			endpoints(func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} }), nil,
			nil},
		{"for leader election", service(nil),
			endpoints(func(e *corev1.Endpoints) { e.Annotations = map[string]string{leaderElection: "x"} }), nil, nil},
		{"two families", service(nil), endpoints(func(e *corev1.Endpoints) {
			e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: "fd00::1"})
		}), nil, []string{usual[0], "IPv6 sql:5432 fd00::1"}},
		{"two subsets", service(nil), endpoints(func(e *corev1.Endpoints) {
			e.Subsets = append(e.Subsets, corev1.EndpointSubset{
				Addresses: []corev1.EndpointAddress{{IP: "10.0.0.3"}}, Ports: []corev1.EndpointPort{{Name: "sql", Port: 5433,
					Protocol: corev1.ProtocolTCP}},
			})
		}), nil, []string{usual[0], "IPv4 sql:5433 10.0.0.3"}},
		{"more addresses than the maximum, ready ones first", service(nil), endpoints(func(e *corev1.Endpoints) {
			for i := range 5 {
				e.Subsets[0].Addresses = append(e.Subsets[0].Addresses, corev1.EndpointAddress{IP: fmt.Sprint("10.0.1.", i)})
			}
		}), nil, []string{"IPv4 sql:5432 10.0.0.1 10.0.1.0 10.0.1.1"}},
		{"an address is removed", service(nil), endpoints(),
			change(func(e *corev1.Endpoints) { e.Subsets[0].NotReadyAddresses = nil }), []string{"IPv4 sql:5432 10.0.0.1"}},
		{"all addresses are removed", service(nil), endpoints(), change(func(e *corev1.Endpoints) { e.Subsets = nil }), nil},
		{"the label is added", service(nil), endpoints(),
			change(func(e *corev1.Endpoints) { e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"} }), nil},
		{"a selector is added", service(nil), endpoints(), func(api *apitest.API) {
			apitest.Change(api, service(nil), "", func(s *corev1.Service) { s.Spec.Selector = map[string]string{"a": "b"} })
		}, nil},
		{"a selector is removed", service(map[string]string{"a": "b"}), endpoints(), func(api *apitest.API) {
			apitest.Change(api, service(nil), "", func(s *corev1.Service) { s.Spec.Selector = nil })
		}, usual},
		{"the Endpoints are deleted", service(nil), endpoints(), func(api *apitest.API) { api.Delete(endpoints(), "") }, nil},
		{"the Service is deleted", service(nil), endpoints(), func(api *apitest.API) { api.Delete(service(nil), "") }, nil},
		{"the slice is deleted", service(nil), endpoints(), func(api *apitest.API) {
			api.Delete(apitest.List[*discoveryv1.EndpointSlice](api, "default")[0], "")
		}, usual},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				controller, err := New(api.Deps(), &api.Events, Config{Max: 3})
				if err != nil {
					t.Fatal(err)
				}
				api.Run(controller)
				api.Create(c.endpoints, c.service)
				synctest.Wait()
				if c.do != nil {
					c.do(api)
				}
				apitest.Settle(time.Second)
				if diff := cmp.Diff(c.want, shown(api)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// The slices have the labels and annotations of the Endpoints, also after these change.
func TestMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Events.Watch()
		controller, err := New(api.Deps(), &api.Events, Config{Max: 1})
		if err != nil {
			t.Fatal(err)
		}
		api.Run(controller)
		api.Create(service(nil), endpoints(func(e *corev1.Endpoints) {
			e.Labels = map[string]string{"team": "a"}
			e.Subsets[0].Addresses[0].NodeName = new("n")
			e.Subsets[0].Addresses[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: "p"}
			e.Subsets[0].Ports[0].AppProtocol = new("example.com/sql")
			e.Annotations = map[string]string{"note": "x", corev1.LastAppliedConfigAnnotation: "{}",
				corev1.EndpointsLastChangeTriggerTime: "t"}
		}))
		synctest.Wait()
		slice := apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]
		labels := map[string]string{"team": "a", "kubernetes.io/service-name": "db",
			"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}
		if diff := cmp.Diff(labels, slice.Labels) + cmp.Diff(map[string]string{"note": "x"}, slice.Annotations); diff != "" {
			t.Error(diff)
		}
		if e, p := slice.Endpoints[0], slice.Ports[0]; e.NodeName == nil || *e.NodeName != "n" || e.TargetRef == nil ||
			e.TargetRef.Name != "p" ||
			p.AppProtocol == nil || *p.AppProtocol != "example.com/sql" || *p.Protocol != corev1.ProtocolTCP {
			t.Errorf("endpoint %+v at %+v", e, p)
		}
		if ref := slice.OwnerReferences[0]; ref.Kind != "Endpoints" || ref.Name != "db" || !strings.HasPrefix(slice.Name,
			"db-") {
			t.Errorf("%+v", slice.ObjectMeta)
		}
		if got := api.Events.Count()["TooManyAddressesToMirror"]; got == 0 {
			t.Error("no event")
		}
		apitest.Change(api, endpoints(), "", func(e *corev1.Endpoints) { e.Labels["team"], e.Annotations["note"] = "b", "y" })
		apitest.Settle(time.Second)
		after := apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]
		if after.UID != slice.UID || after.Labels["team"] != "b" || after.Annotations["note"] != "y" {
			t.Errorf("%+v", after.ObjectMeta)
		}
		revision := after.ResourceVersion
		apitest.Change(api, endpoints(), "",
			func(e *corev1.Endpoints) { e.Annotations[corev1.EndpointsLastChangeTriggerTime] = "u" })
		apitest.Settle(time.Second)
		if after := apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]; after.ResourceVersion != revision {
			t.Error("a change of an annotation that is not mirrored caused a write")
		}
	})
}
