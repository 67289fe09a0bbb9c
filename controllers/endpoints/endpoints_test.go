package endpoints

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/controllers/internal/apitest"
)

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

// pod returns a running pod with the address ip.
func pod(name, ip string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := apitest.Pod("default", name, func(p *corev1.Pod) {
		p.Labels, p.UID = map[string]string{"app": "web"}, types.UID(name)
		running(p, ip)
	})
	for _, f := range change {
		f(p)
	}
	return p
}

func running(p *corev1.Pod, ip string) {
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

// shown formats subsets; ! marks an address that is not ready.
func shown(subsets []corev1.EndpointSubset) string {
	var out []string
	for _, s := range subsets {
		var parts []string
		for _, a := range s.Addresses {
			parts = append(parts, a.IP+a.Hostname)
		}
		for _, a := range s.NotReadyAddresses {
			parts = append(parts, "!"+a.IP+a.Hostname)
		}
		for _, p := range s.Ports {
			text := fmt.Sprintf("%s:%d", p.Name, p.Port)
			if p.Protocol == corev1.ProtocolUDP {
				text += "/UDP"
			}
			if p.AppProtocol != nil {
				text += "=" + *p.AppProtocol
			}
			parts = append(parts, text)
		}
		out = append(out, strings.Join(parts, " "))
	}
	return strings.Join(out, "; ")
}

func TestSubsets(t *testing.T) {
	t.Parallel()
	two := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "admin", Protocol: corev1.ProtocolTCP,
			TargetPort: intstr.FromString("admin")})
	}
	admin := func(n int32) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "admin", ContainerPort: n, Protocol: corev1.ProtocolTCP}}
		}
	}
	published := func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true }
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	finished := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	other := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53,
			TargetPort: intstr.FromInt32(53)})
		s.Spec.Ports[0].AppProtocol = new("kubernetes.io/ws")
	}
	families := func(all ...corev1.IPFamily) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.IPFamilies = all }
	}
	both := func(p *corev1.Pod) { p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::1"}) }
	for _, c := range []struct {
		name    string
		service *corev1.Service
		pods    []*corev1.Pod
		want    string
	}{
		{"none", service(), nil, ""},
		{"sorted", service(), []*corev1.Pod{pod("b", "10.0.0.2"), pod("a", "10.0.0.1")}, "10.0.0.1 10.0.0.2 http:8080"},
		{"not ready", service(), []*corev1.Pod{pod("a", "10.0.0.1"), pod("b", "10.0.0.2", unready)},
			"10.0.0.1 !10.0.0.2 http:8080"},
		{"published although not ready", service(published), []*corev1.Pod{pod("b", "10.0.0.2", unready)},
			"10.0.0.2 http:8080"},
		{"terminating", service(), []*corev1.Pod{pod("a", "10.0.0.1", ending)}, ""},
		{"published although terminating", service(published), []*corev1.Pod{pod("a", "10.0.0.1", ending)},
			"10.0.0.1 http:8080"},
		{"the same ports", service(two), []*corev1.Pod{pod("a", "10.0.0.1", admin(90)), pod("b", "10.0.0.2", admin(90))},
			"10.0.0.1 10.0.0.2 admin:90 http:8080"},
		{"a port with two numbers", service(two), []*corev1.Pod{pod("a", "10.0.0.1", admin(90)),
			pod("b", "10.0.0.2", admin(91))},
			"10.0.0.1 admin:90; 10.0.0.2 admin:91; 10.0.0.1 10.0.0.2 http:8080"},
		{"a port that one pod lacks", service(two), []*corev1.Pod{pod("a", "10.0.0.1", admin(90)), pod("b", "10.0.0.2")},
			"10.0.0.1 admin:90; 10.0.0.1 10.0.0.2 http:8080"},
		{"two pods with one address", service(), []*corev1.Pod{pod("a", "10.0.0.1"), pod("b", "10.0.0.1", unready)},
			"10.0.0.1 !10.0.0.1 http:8080"},
		{"without ports", service(func(s *corev1.Service) { s.Spec.Ports = nil }), []*corev1.Pod{pod("a", "10.0.0.1")},
			"10.0.0.1"},
		{"another family", service(), []*corev1.Pod{pod("a", "fd00::1")}, ""},
		{"the first of two families", service(families(corev1.IPv6Protocol, corev1.IPv4Protocol)),
			[]*corev1.Pod{pod("a", "10.0.0.1", both)}, "fd00::1 http:8080"},
		{"succeeded", service(), []*corev1.Pod{pod("a", "10.0.0.1", finished(corev1.PodSucceeded))}, ""},
		{"failed, and published although not ready", service(published),
			[]*corev1.Pod{pod("a", "10.0.0.1", finished(corev1.PodFailed))}, ""},
		{"no address yet", service(published),
			[]*corev1.Pod{pod("a", "", func(p *corev1.Pod) { p.Status.PodIP, p.Status.PodIPs = "", nil })}, ""},
		{"another protocol and an appProtocol", service(other), []*corev1.Pod{pod("a", "10.0.0.1")},
			"10.0.0.1 dns:53/UDP http:8080=kubernetes.io/ws"},
		{"a host name in another domain", service(),
			[]*corev1.Pod{pod("a", "10.0.0.1", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "-a", "other" })},
			"10.0.0.1 http:8080"},
		{"a host name", service(),
			[]*corev1.Pod{pod("a", "10.0.0.1", func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "-a", "web" })},
			"10.0.0.1-a http:8080"},
	} {
		if got := shown(subsetsOf(c.service, c.pods)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	addresses := func(n int) []corev1.EndpointAddress { return make([]corev1.EndpointAddress, n) }
	for _, c := range []struct {
		ready, notReady         []int // by subset
		wantReady, wantNotReady []int
		truncated               bool
	}{
		{[]int{600, 400}, []int{0, 0}, []int{600, 400}, []int{0, 0}, false},
		{[]int{600, 600}, []int{100, 0}, []int{500, 500}, []int{0, 0}, true},
		{[]int{1500, 1}, []int{0, 0}, []int{1000, 0}, []int{0, 0}, true},
		{[]int{300, 300}, []int{600, 200}, []int{300, 300}, []int{300, 100}, true},
		{[]int{1000, 0}, []int{5, 5}, []int{1000, 0}, []int{0, 0}, true},
	} {
		var subsets []corev1.EndpointSubset
		for i := range c.ready {
			subsets = append(subsets, corev1.EndpointSubset{Addresses: addresses(c.ready[i]),
				NotReadyAddresses: addresses(c.notReady[i])})
		}
		truncated := truncate(subsets)
		var ready, notReady []int
		for _, s := range subsets {
			ready, notReady = append(ready, len(s.Addresses)), append(notReady, len(s.NotReadyAddresses))
		}
		if diff := cmp.Diff(c.wantReady, ready) + cmp.Diff(c.wantNotReady, notReady); diff != "" || truncated != c.truncated {
			t.Errorf("%v, %v: %v %s", c.ready, c.notReady, truncated, diff)
		}
	}
}

func start(t *testing.T) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	api.Run(New(api.Deps(), &api.Events, Config{}))
	return api
}

// add creates a running pod.
func add(api *apitest.API, name, ip string) {
	api.T.Helper()
	p := pod(name, ip)
	p.UID, p.Spec.NodeName = "", "n"
	api.Create(p)
	apitest.Change(api, p, "status", func(p *corev1.Pod) { running(p, ip) })
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		api.Create(service(func(s *corev1.Service) { s.Labels = map[string]string{"team": "a"} }))
		synctest.Wait()
		e, ok := apitest.Get[*corev1.Endpoints](api, "default", "web")
		want := map[string]string{"team": "a", "service.kubernetes.io/headless": "",
			"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
		if diff := cmp.Diff(want, e.Labels); !ok || diff != "" || len(e.Subsets) != 0 ||
			e.Annotations[corev1.EndpointsLastChangeTriggerTime] == "" {
			t.Errorf("%s %+v", diff, e)
		}
		add(api, "a", "10.0.0.1")
		synctest.Wait()
		e, _ = apitest.Get[*corev1.Endpoints](api, "default", "web")
		if got := shown(e.Subsets); got != "10.0.0.1 http:8080" {
			t.Error(got)
		}
		a, _ := apitest.Get[*corev1.Pod](api, "default", "a")
		address := corev1.EndpointAddress{IP: "10.0.0.1", NodeName: new("n"), TargetRef: &corev1.ObjectReference{Kind: "Pod",
			Namespace: "default", Name: "a", UID: a.UID}}
		if diff := cmp.Diff(address, e.Subsets[0].Addresses[0]); diff != "" {
			t.Error(diff)
		}
		revision := e.ResourceVersion
		apitest.Change(api, pod("a", ""), "", func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} })
		apitest.Settle(time.Second)
		if e, _ = apitest.Get[*corev1.Endpoints](api, "default", "web"); e.ResourceVersion != revision {
			t.Error("an annotation of a pod caused a write")
		}
		api.Delete(e, "")
		synctest.Wait()
		if e, ok = apitest.Get[*corev1.Endpoints](api, "default", "web"); !ok || shown(e.Subsets) != "10.0.0.1 http:8080" {
			t.Error("the controller did not recreate the Endpoints")
		}
		apitest.Change(api, service(), "", func(s *corev1.Service) { s.Spec.Selector = nil })
		synctest.Wait()
		if e, ok = apitest.Get[*corev1.Endpoints](api, "default", "web"); !ok || shown(e.Subsets) != "10.0.0.1 http:8080" {
			t.Error("the controller changed the Endpoints of a Service without selector")
		}
		api.Delete(service(), "")
		synctest.Wait()
		if _, ok = apitest.Get[*corev1.Endpoints](api, "default", "web"); ok {
			t.Error("the Endpoints remain after the deletion of the Service")
		}
	})
}

// At its start the controller deletes its own Endpoints without a Service, and keeps those that users created.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		for name, labels := range map[string]map[string]string{"ours": {labelManagedBy: Component}, "users": nil} {
			api.Create(&corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}})
		}
		api.Run(New(api.Deps(), &api.Events, Config{}))
		if _, ok := apitest.Get[*corev1.Endpoints](api, "default", "ours"); ok {
			t.Error("the Endpoints of a deleted Service remain")
		}
		if _, ok := apitest.Get[*corev1.Endpoints](api, "default", "users"); !ok {
			t.Error("a user's Endpoints were deleted")
		}
	})
}

func TestOverCapacity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		for i := range 1002 {
			add(api, fmt.Sprint("p", i), fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		}
		api.Create(service())
		synctest.Wait()
		e, _ := apitest.Get[*corev1.Endpoints](api, "default", "web")
		if len(e.Subsets[0].Addresses) != 1000 || e.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
			t.Errorf("%d addresses, %v", len(e.Subsets[0].Addresses), e.Annotations)
		}
		for i := range 2 {
			apitest.Change(api, pod(fmt.Sprint("p", i), ""), "status", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}
		apitest.Settle(time.Second)
		e, _ = apitest.Get[*corev1.Endpoints](api, "default", "web")
		if _, over := e.Annotations[corev1.EndpointsOverCapacity]; len(e.Subsets[0].Addresses) != 1000 || over {
			t.Errorf("%d addresses, %v", len(e.Subsets[0].Addresses), e.Annotations)
		}
	})
}
