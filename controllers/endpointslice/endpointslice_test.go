package endpointslice

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/internal/apitest"
)

// start runs the controller on an empty cluster with the node n in zone z.
func start(t *testing.T, cfg Config) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	api.Create(zoned("n", "z"))
	api.Events.Watch()
	c, err := New(api.Deps(), &api.Events, cfg)
	if err != nil {
		t.Fatal(err)
	}
	api.Run(c)
	return api
}

func zoned(name, zone string) *corev1.Node {
	n := apitest.Node(name)
	n.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	return n
}

func service(change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			ClusterIP: corev1.ClusterIPNone,
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80,
				TargetPort: intstr.FromInt32(8080)}},
		},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	return apitest.Pod("default", name, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Spec.NodeName = "n"
	}}, change...)...)
}

// run posts the status of a running pod.
func running(api *apitest.API, p *corev1.Pod, ready bool, ips ...string) {
	api.T.Helper()
	apitest.Change(api, p, "status", func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIPs = nil
		for _, ip := range ips {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
		p.Status.PodIP = ips[0]
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()}}
	})
}

// shown formats the slices of the Service web: for each endpoint its address, conditions and other fields.
func shown(api *apitest.API) []string {
	api.T.Helper()
	var out []string
	for _, s := range apitest.List[*discoveryv1.EndpointSlice](api, "default") {
		var ports, endpoints []string
		for _, p := range s.Ports {
			text := fmt.Sprintf("%s:%d", *p.Name, *p.Port)
			if *p.Protocol != corev1.ProtocolTCP {
				text += "/" + string(*p.Protocol)
			}
			if p.AppProtocol != nil {
				text += "=" + *p.AppProtocol
			}
			ports = append(ports, text)
		}
		for _, e := range s.Endpoints {
			endpoints = append(endpoints, shownEndpoint(e))
		}
		slices.Sort(endpoints)
		out = append(out, fmt.Sprintf("%s [%s] %s", s.AddressType, strings.Join(ports, " "), strings.Join(endpoints, "; ")))
	}
	slices.Sort(out)
	return out
}

func shownEndpoint(e discoveryv1.Endpoint) string {
	text := strings.Join(e.Addresses, ",")
	for _, c := range []struct {
		name string
		is   *bool
	}{{"ready", e.Conditions.Ready}, {"serving", e.Conditions.Serving}, {"terminating", e.Conditions.Terminating}} {
		if c.is != nil && *c.is {
			text += " " + c.name
		}
	}
	if e.Hostname != nil {
		text += " hostname=" + *e.Hostname
	}
	if e.Hints != nil {
		for _, z := range e.Hints.ForZones {
			text += " forZone=" + z.Name
		}
		for _, n := range e.Hints.ForNodes {
			text += " forNode=" + n.Name
		}
	}
	return text
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	headful := func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.10" }
	named := func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromString("http") }
	port := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: n}}
		}
	}
	distribution := func(value string) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.TrafficDistribution = &value }
	}
	plain := func(api *apitest.API) {
		api.Create(pod("a"))
		running(api, pod("a"), true, "10.0.0.1")
	}
	for _, c := range []struct {
		name    string
		service *corev1.Service
		do      func(api *apitest.API)
		want    []string
	}{
		{"no pods", service(headful), func(*apitest.API) {}, []string{"IPv4 [] "}},
		{"a ready pod", service(headful), plain, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
		{"a pod without an address", service(), func(api *apitest.API) { api.Create(pod("a")) }, []string{"IPv4 [] "}},
		{"a pod that is not ready", service(), func(api *apitest.API) {
			api.Create(pod("a"))
			running(api, pod("a"), false, "10.0.0.1")
		}, []string{"IPv4 [http:8080] 10.0.0.1"}},
		{"published although not ready", service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			func(api *apitest.API) {
				api.Create(pod("a"))
				running(api, pod("a"), false, "10.0.0.1")
			}, []string{"IPv4 [http:8080] 10.0.0.1 ready"}},
		{"a pod that terminates", service(), func(api *apitest.API) {
			plain(api)
			api.Delete(pod("a"), "")
		}, []string{"IPv4 [http:8080] 10.0.0.1 serving terminating"}},
		{"a pod that has finished", service(), func(api *apitest.API) {
			plain(api)
			apitest.Change(api, pod("a"), "status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}, []string{"IPv4 [] "}},
		{"a pod with other labels", service(), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, pod("a"), "", func(p *corev1.Pod) { p.Labels["app"] = "other" })
		}, []string{"IPv4 [] "}},
		{"a named port with two numbers", service(named), func(api *apitest.API) {
			api.Create(pod("a", port(81)), pod("b", port(82)), pod("c", port(81)))
			running(api, pod("a"), true, "10.0.0.1")
			running(api, pod("b"), true, "10.0.0.2")
			running(api, pod("c"), true, "10.0.0.3")
		}, []string{"IPv4 [http:81] 10.0.0.1 ready serving; 10.0.0.3 ready serving",
			"IPv4 [http:82] 10.0.0.2 ready serving"}},
		{"a name that the pod has only for another protocol", service(named), func(api *apitest.API) {
			api.Create(pod("a", port(81), func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP }))
			running(api, pod("a"), true, "10.0.0.1")
		}, []string{"IPv4 [] 10.0.0.1 ready serving"}},
		{"a host name in the Service's domain", service(), func(api *apitest.API) {
			api.Create(pod("a", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "first", "web" }),
				pod("b", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "second", "other" }))
			running(api, pod("a"), true, "10.0.0.1")
			running(api, pod("b"), true, "10.0.0.2")
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving hostname=first; 10.0.0.2 ready serving"}},
		{"a headless Service without ports", service(func(s *corev1.Service) { s.Spec.Ports = nil }), plain,
			[]string{"IPv4 [] 10.0.0.1 ready serving"}},
		{"PreferClose", service(distribution("PreferClose")), plain,
			[]string{"IPv4 [http:8080] 10.0.0.1 ready serving forZone=z"}},
		{"PreferSameZone", service(distribution("PreferSameZone")), plain,
			[]string{"IPv4 [http:8080] 10.0.0.1 ready serving forZone=z"}},
		{"PreferSameNode", service(distribution("PreferSameNode")), plain,
			[]string{"IPv4 [http:8080] 10.0.0.1 ready serving forZone=z forNode=n"}},
		{"no hints for a pod that is not ready", service(distribution("PreferClose")), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			running(api, pod("a"), false, "10.0.0.1")
		}, []string{"IPv4 [http:8080] 10.0.0.1"}},
		{"hints are removed with trafficDistribution", service(distribution("PreferClose")), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, service(), "", func(s *corev1.Service) { s.Spec.TrafficDistribution = nil })
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
		{"the node's zone changes", service(distribution("PreferClose")), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, zoned("n", ""), "", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "y" })
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving forZone=y"}},
		{"a node that does not exist", service(), func(api *apitest.API) {
			api.Create(pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "m" }))
			running(api, pod("a"), true, "10.0.0.1")
		}, []string{"IPv4 [] "}},
		{"a node that appears", service(), func(api *apitest.API) {
			api.Create(pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "m" }))
			running(api, pod("a"), true, "10.0.0.1")
			synctest.Wait()
			api.Create(zoned("m", "z"))
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
		{"a selector that changes", service(), func(api *apitest.API) {
			plain(api)
			api.Create(pod("b", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }))
			running(api, pod("b"), true, "10.0.0.2")
			synctest.Wait()
			apitest.Change(api, service(), "", func(s *corev1.Service) { s.Spec.Selector["app"] = "other" })
		}, []string{"IPv4 [http:8080] 10.0.0.2 ready serving"}},
		{"a port that changes", service(), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, service(), "", func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(9090) })
		}, []string{"IPv4 [http:9090] 10.0.0.1 ready serving"}},
		{"several ports, of other protocols", service(func(s *corev1.Service) {
			s.Spec.Ports = append(s.Spec.Ports,
				corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, TargetPort: intstr.FromInt32(5353)},
				corev1.ServicePort{Name: "sig", Protocol: corev1.ProtocolSCTP, Port: 36412, TargetPort: intstr.FromInt32(36412),
					AppProtocol: new("example.com/s1ap")})
		}), plain, []string{"IPv4 [http:8080 dns:5353/UDP sig:36412/SCTP=example.com/s1ap] 10.0.0.1 ready serving"}},
		{"an appProtocol that changes", service(), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, service(), "",
				func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = new("kubernetes.io/h2c") })
		}, []string{"IPv4 [http:8080=kubernetes.io/h2c] 10.0.0.1 ready serving"}},
		{"published although its node does not exist",
			service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }), func(api *apitest.API) {
				api.Create(pod("a", func(p *corev1.Pod) { p.Spec.NodeName = "m" }))
				running(api, pod("a"), true, "10.0.0.1")
			}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
		{"published although it terminates", service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			func(api *apitest.API) {
				plain(api)
				api.Delete(pod("a"), "")
			}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving terminating"}},
		{"not published once it has failed", service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }),
			func(api *apitest.API) {
				plain(api)
				apitest.Change(api, pod("a"), "status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
			}, []string{"IPv4 [] "}},
		{"ExternalName", service(func(s *corev1.Service) {
			s.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com",
				Selector: s.Spec.Selector}
		}), plain, nil},
		{"no selector", service(func(s *corev1.Service) { s.Spec.Selector = nil }), plain, nil},
		{"a slice that a user deletes", service(), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			api.Delete(apitest.List[*discoveryv1.EndpointSlice](api, "default")[0], "")
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
		{"a slice that a user changes", service(), func(api *apitest.API) {
			plain(api)
			synctest.Wait()
			apitest.Change(api, apitest.List[*discoveryv1.EndpointSlice](api, "default")[0], "",
				func(s *discoveryv1.EndpointSlice) {
					s.Endpoints[0].Conditions.Ready = new(false)
					s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.0.0.9"}})
				})
		}, []string{"IPv4 [http:8080] 10.0.0.1 ready serving"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := start(t, Config{})
				api.Create(c.service)
				synctest.Wait()
				c.do(api)
				apitest.Settle(time.Second)
				if diff := cmp.Diff(c.want, shown(api)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{})
		api.Create(service(
			func(s *corev1.Service) { s.Labels = map[string]string{"team": "a", discoveryv1.LabelManagedBy: "me"} }))
		synctest.Wait()
		svc, _ := apitest.Get[*corev1.Service](api, "default", "web")
		slice := apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]
		want := map[string]string{
			"team": "a", "kubernetes.io/service-name": "web", "service.kubernetes.io/headless": "",
			"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		}
		if diff := cmp.Diff(want, slice.Labels); diff != "" {
			t.Error(diff)
		}
		if !strings.HasPrefix(slice.Name, "web-") || !metav1.IsControlledBy(slice, svc) ||
			slice.OwnerReferences[0].Kind != "Service" || !*slice.OwnerReferences[0].BlockOwnerDeletion {
			t.Errorf("%+v", slice.ObjectMeta)
		}
		if got := slice.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != svc.CreationTimestamp.UTC().Format(
			time.RFC3339Nano) {
			t.Errorf("trigger time is %q", got)
		}
		time.Sleep(time.Minute)
		api.Create(pod("a"))
		running(api, pod("a"), true, "10.0.0.1")
		synctest.Wait()
		at, _ := apitest.Get[*corev1.Pod](api, "default", "a")
		slice = apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]
		if got, want := slice.Annotations[corev1.EndpointsLastChangeTriggerTime],
			at.Status.Conditions[0].LastTransitionTime.UTC().Format(time.RFC3339Nano); got != want {
			t.Errorf("trigger time is %q, want %q", got, want)
		}
		if ref := slice.Endpoints[0].TargetRef; ref.Kind != "Pod" || ref.Name != "a" || ref.Namespace != "default" ||
			ref.UID != at.UID ||
			*slice.Endpoints[0].NodeName != "n" || *slice.Endpoints[0].Zone != "z" {
			t.Errorf("%+v", slice.Endpoints[0])
		}
		apitest.Change(api, svc, "", func(s *corev1.Service) { s.Labels["team"] = "b" })
		synctest.Wait()
		slice = apitest.List[*discoveryv1.EndpointSlice](api, "default")[0]
		if _, stamped := slice.Annotations[corev1.EndpointsLastChangeTriggerTime]; slice.Labels["team"] != "b" || stamped {
			t.Errorf("%+v", slice.ObjectMeta)
		}
	})
}

// A change of one pod writes one slice of each Service that selects it, and nothing else. A change that does not affect
// endpoints writes nothing.
func TestWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Max: 4})
		api.Create(service(), service(func(s *corev1.Service) { s.Name = "again" }), service(func(s *corev1.Service) {
			s.Name, s.Spec.Selector = "other", map[string]string{"app": "other"}
		}))
		for i := range 10 {
			api.Create(pod(fmt.Sprint("p", i)))
			running(api, pod(fmt.Sprint("p", i)), true, fmt.Sprint("10.0.0.", i+1))
		}
		apitest.Settle(time.Second)
		before := revisions(api)
		if len(before) != 7 {
			t.Errorf("%d slices", len(before))
		}
		running(api, pod("p3"), false, "10.0.0.4")
		apitest.Settle(time.Second)
		if n := different(before, revisions(api)); n != 2 {
			t.Errorf("a change of one pod wrote %d slices, want one for each of 2 Services", n)
		}
		before = revisions(api)
		apitest.Change(api, pod("p3"), "", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} })
		apitest.Change(api, pod("p3"), "status", func(p *corev1.Pod) { p.Status.Message = "hello" })
		api.Create(pod("new"))
		apitest.Change(api, service(), "", func(s *corev1.Service) { s.Annotations = map[string]string{"a": "b"} })
		apitest.Settle(time.Second)
		if n := different(before, revisions(api)); n != 0 {
			t.Errorf("changes that do not affect endpoints wrote %d slices", n)
		}
		for i := range 8 {
			api.Delete(pod(fmt.Sprint("p", i)), "")
			apitest.Change(api, pod(fmt.Sprint("p", i)), "status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}
		apitest.Settle(time.Second)
		if all := shown(api); len(all) > 5 {
			t.Errorf("empty slices were not deleted: %v", all)
		}
		if n := len(api.Events.Count()); n != 0 {
			t.Errorf("%d events", n)
		}
	})
}

func revisions(api *apitest.API) map[string]string {
	out := map[string]string{}
	for _, s := range apitest.List[*discoveryv1.EndpointSlice](api, "default") {
		out[s.Name] = s.ResourceVersion
	}
	return out
}

func different(a, b map[string]string) int {
	all := maps.Clone(a)
	maps.Copy(all, b)
	n := 0
	for name := range all {
		if a[name] != b[name] {
			n++
		}
	}
	return n
}

// Changes within the batch period are written together.
func TestBatchPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{BatchPeriod: 10 * time.Second})
		api.Create(service())
		synctest.Wait()
		before := revisions(api)
		for i := range 3 {
			api.Create(pod(fmt.Sprint("p", i)))
			running(api, pod(fmt.Sprint("p", i)), true, fmt.Sprint("10.0.0.", i+1))
			apitest.Settle(time.Second)
		}
		if n := different(before, revisions(api)); n != 0 {
			t.Error("a slice was written before the end of the period")
		}
		apitest.Settle(10 * time.Second)
		if got := shown(api); len(got) != 1 || strings.Count(got[0], "ready") != 3 {
			t.Error(got)
		}
	})
}

// The topology mode assigns endpoints to zones by their CPUs.
func TestTopologyMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{})
		apitest.Change(api, zoned("n", ""), "", func(n *corev1.Node) { n.Labels[corev1.LabelTopologyZone] = "a" })
		api.Create(zoned("m", "b"))
		cpus := func(node, n string) {
			api.Ready(node, corev1.ConditionTrue)
			apitest.Change(api, zoned(node, ""), "status",
				func(o *corev1.Node) { o.Status.Allocatable["cpu"] = resource.MustParse(n) })
		}
		cpus("n", "4")
		cpus("m", "4")
		api.Create(service(
			func(s *corev1.Service) { s.Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"} }))
		zones := func() map[string]int {
			apitest.Settle(time.Second)
			out := map[string]int{}
			for _, s := range apitest.List[*discoveryv1.EndpointSlice](api, "default") {
				for _, e := range s.Endpoints {
					if e.Hints != nil {
						out[e.Hints.ForZones[0].Name]++
					}
				}
			}
			return out
		}
		add := func(i int, node string) {
			api.Create(pod(fmt.Sprint("p", i), func(p *corev1.Pod) { p.Spec.NodeName = node }))
			running(api, pod(fmt.Sprint("p", i)), true, fmt.Sprint("10.0.0.", i+1))
		}
		add(0, "n")
		if got := zones(); len(got) != 0 || api.Events.Count()["TopologyAwareHintsDisabled"] == 0 {
			t.Errorf("one endpoint for two zones: %v", got)
		}
		for i := 1; i < 8; i++ {
			add(i, "n")
		}
		if diff := cmp.Diff(map[string]int{"a": 4, "b": 4}, zones()); diff != "" ||
			api.Events.Count()["TopologyAwareHintsEnabled"] == 0 {
			t.Error(diff)
		}
		cpus("m", "12")
		if got := zones(); got["b"] < 5 || got["a"]+got["b"] != 8 {
			t.Errorf("after the CPUs changed: %v", got)
		}
		cpus("m", "0")
		if diff := cmp.Diff(map[string]int{}, zones()); diff != "" {
			t.Errorf("a node without CPUs: %s", diff)
		}
		api.Events.Count()
		cpus("m", "4")
		apitest.Change(api, service(), "", func(s *corev1.Service) { s.Annotations["a"] = "b" })
		zones()
		apitest.Change(api, service(), "", func(s *corev1.Service) { s.Annotations = nil })
		if diff := cmp.Diff(map[string]int{}, zones()); diff != "" || api.Events.Count()["TopologyAwareHintsDisabled"] != 1 {
			t.Error(diff)
		}
	})
}

// A Service of two families has slices of both.
func TestTwoFamilies(t *testing.T) {
	t.Parallel()
	s := service(func(s *corev1.Service) {
		s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	})
	both := pod("a", func(p *corev1.Pod) {
		p.Status.PodIP, p.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "FD00:0::1"}}
	})
	one := pod("b", func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "10.0.0.2", []corev1.PodIP{{IP: "10.0.0.2"}} })
	for _, c := range []struct {
		pods []*corev1.Pod
		want string
	}{
		{[]*corev1.Pod{both, one}, "IPv4 10.0.0.1 10.0.0.2, IPv6 fd00::1"},
		{[]*corev1.Pod{one}, "IPv4 10.0.0.2, IPv6"},
		{nil, "IPv4, IPv6"},
	} {
		var got []string
		for _, g := range build(s, c.pods, nil, nil) {
			text := string(g.Family)
			for _, e := range g.Endpoints {
				text += " " + strings.Join(e.Addresses, ",")
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("got %s, want %s", text, c.want)
		}
	}
}
