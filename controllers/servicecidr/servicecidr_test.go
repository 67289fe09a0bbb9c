package servicecidr

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	api.Events.Watch()
	api.Run(New(api.Deps(), &api.Events, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}))
	return api
}

func service(name, ip string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func serviceCIDR(name string, ranges ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: ranges}}
}

// shown formats the IPAddresses: name, family, parent.
func shown(api *apitest.API) []string {
	var out []string
	for _, ip := range apitest.List[*networkingv1.IPAddress](api, "") {
		out = append(out,
			fmt.Sprintf("%s %s %s", ip.Name, ip.Labels[networkingv1.LabelIPAddressFamily], ip.Spec.ParentRef.Name))
	}
	slices.Sort(out)
	return out
}

// state formats the conditions of a ServiceCIDR.
func state(api *apitest.API, name string) string {
	c, ok := apitest.Get[*networkingv1.ServiceCIDR](api, "", name)
	if !ok {
		return "gone"
	}
	out := ""
	for _, is := range c.Status.Conditions {
		out += fmt.Sprintf("%s=%s %s", is.Type, is.Status, is.Reason)
	}
	return out
}

func TestIPAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		api.Create(service("a", "10.96.0.5"), service("headless", corev1.ClusterIPNone))
		expect := func(what string, want ...string) {
			t.Helper()
			apitest.Settle(time.Second)
			if diff := cmp.Diff(want, shown(api)); diff != "" {
				t.Errorf("%s: %s", what, diff)
			}
		}
		expect("created", "10.96.0.5 IPv4 a")
		ip, _ := apitest.Get[*networkingv1.IPAddress](api, "", "10.96.0.5")
		api.Delete(ip, "")
		expect("deleted by a client", "10.96.0.5 IPv4 a")
		leaked := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "10.96.0.6",
			Labels: map[string]string{networkingv1.LabelManagedBy: manager}},
			Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default",
				Name: "a"}}}
		api.Create(leaked)
		expect("leaked", "10.96.0.5 IPv4 a")

		users := leaked.DeepCopy()
		users.ResourceVersion, users.UID, users.Name, users.Labels = "", "", "10.96.0.7", nil
		api.Create(users)
		if _, err := api.Client.Create(t.Context(), service("b", "10.96.0.7")); err == nil {
			t.Error("a Service got an address that a user's IPAddress reserves")
		}
		api.Delete(service("a", ""), "")
		expect("Service deleted", "10.96.0.7  a")
	})
}

func TestServiceCIDRs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t)
		apitest.Settle(time.Second)
		if got := state(api, Default); got != "Ready=True " {
			t.Errorf("the default: %s", got)
		}
		if _, err := api.Client.Create(t.Context(), service("a", "10.200.0.5")); err == nil {
			t.Error("a Service got an address outside of all ranges")
		}
		api.Create(serviceCIDR("more", "10.200.0.0/24"))
		apitest.Settle(time.Second)
		api.Create(service("a", "10.200.0.5"))
		more := serviceCIDR("more")
		api.Delete(more, "")
		apitest.Settle(time.Minute)
		if got := state(api, "more"); got != "Ready=False Terminating" {
			t.Errorf("deleted while it is in use: %s", got)
		}
		if _, err := api.Client.Create(t.Context(), service("b", "10.200.0.6")); err == nil {
			t.Error("a Service got an address of a terminating ServiceCIDR")
		}
		api.Create(serviceCIDR("parent", "10.200.0.0/16"))
		apitest.Settle(time.Second)
		if got := state(api, "more"); got != "gone" {
			t.Errorf("deleted while another one contains its addresses: %s", got)
		}
		api.Delete(serviceCIDR("parent"), "")
		apitest.Settle(time.Second)
		api.Delete(service("a", ""), "")
		apitest.Settle(time.Second)
		if got := state(api, "parent"); got == "gone" {
			t.Error("the ServiceCIDR was deleted at once, although an allocation may be in progress")
		}
		apitest.Settle(10 * time.Second)
		if got := state(api, "parent"); got != "gone" {
			t.Errorf("deleted after its last Service: %s", got)
		}
	})
}
