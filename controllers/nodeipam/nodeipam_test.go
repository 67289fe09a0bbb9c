package nodeipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/podcidr"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func start(t *testing.T, cfg Config) *apitest.API {
	t.Helper()
	api := apitest.New(t)
	api.Events.Watch()
	api.Run(New(api.Deps(), &api.Events, cfg))
	return api
}

// self is a Node that sets its own ranges.
func self(name string, ranges ...string) *corev1.Node {
	node := apitest.Node(name)
	node.Annotations = map[string]string{podcidr.Annotation: podcidr.Self}
	node.Spec.PodCIDRs = ranges
	return node
}

func rangesOf(api *apitest.API, name string) string {
	node := apitest.Existing[*corev1.Node](api, "", name)
	return strings.Join(node.Spec.PodCIDRs, ",")
}

func TestNodesGetDistinctRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Services: prefixes("10.96.0.0/16", "fd00:96::/112")})
		api.Create(self("server", "10.88.7.0/24", "fd12:3456:789a:1::/64"))
		apitest.Settle(time.Second)
		for i := range 30 {
			api.Create(apitest.Node(fmt.Sprint("node-", i)))
		}
		apitest.Settle(time.Second)
		var all []netip.Prefix
		for _, node := range apitest.List[*corev1.Node](api, "") {
			got := podcidr.Of(node)
			if len(got) != 2 || node.Spec.PodCIDR != node.Spec.PodCIDRs[0] {
				t.Fatalf("%s has %v, podCIDR %q", node.Name, got, node.Spec.PodCIDR)
			}
			if !netip.MustParsePrefix("10.88.0.0/13").Contains(got[0].Addr()) || got[0].Bits() != 24 ||
				!netip.MustParsePrefix("fd12:3456:789a::/48").Contains(got[1].Addr()) || got[1].Bits() != 64 {
				t.Errorf("%s has %v", node.Name, got)
			}
			for _, p := range got {
				if slices.ContainsFunc(all, p.Overlaps) {
					t.Errorf("the range %s of %s overlaps that of another node", p, node.Name)
				}
				all = append(all, p)
			}
		}
		before := rangesOf(api, "node-3")
		api.Delete(apitest.Existing[*corev1.Node](api, "", "node-3"), "")
		apitest.Settle(time.Second)
		api.Create(apitest.Node("node-3"))
		apitest.Settle(time.Second)
		if got := rangesOf(api, "node-3"); got != before {
			t.Errorf("the node that returned has %s, before it had %s", got, before)
		}
	})
}

// A Node that sets its own ranges gets none, and when it has them, they are reserved.
func TestOwnRangesAreReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Clusters: prefixes("10.1.0.0/23"), Services: prefixes("10.96.0.0/16")})
		api.Create(self("server"))
		apitest.Settle(time.Hour)
		if got := rangesOf(api, "server"); got != "" {
			t.Errorf("the controller gave the node %s", got)
		}
		apitest.Change(api, apitest.Existing[*corev1.Node](api, "", "server"), "",
			func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.1.1.0/24"} })
		api.Create(apitest.Node("a"))
		apitest.Settle(time.Second)
		if got := rangesOf(api, "a"); got != "10.1.0.0/24" {
			t.Errorf("the other node has %q, want the free part 10.1.0.0/24", got)
		}
	})
}

func TestFullClusterWaitsForADeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Clusters: prefixes("10.1.0.0/23"), Services: prefixes("10.1.0.0/28")})
		api.Create(apitest.Node("a"))
		apitest.Settle(time.Second)
		api.Create(apitest.Node("b"))
		apitest.Settle(time.Hour)
		if a, b := rangesOf(api, "a"), rangesOf(api, "b"); a != "10.1.1.0/24" || b != "" {
			t.Errorf("a has %q, b %q: the only range beside that of Services is 10.1.1.0/24", a, b)
		}
		if diff := cmp.Diff(map[string]int{"CIDRNotAvailable": 1}, api.Events.Count()); diff != "" {
			t.Error(diff)
		}
		api.Delete(apitest.Existing[*corev1.Node](api, "", "a"), "")
		apitest.Settle(time.Second)
		if b := rangesOf(api, "b"); b != "10.1.1.0/24" {
			t.Errorf("b has %q after the deletion of a", b)
		}
	})
}

func TestServiceCIDRsAreReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Clusters: prefixes("10.1.0.0/23")})
		api.Create(&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.1.1.0/24"}}})
		api.Create(apitest.Node("a"))
		apitest.Settle(time.Second)
		if got := rangesOf(api, "a"); got != "10.1.0.0/24" {
			t.Errorf("got %q", got)
		}
	})
}

func TestOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := start(t, Config{Off: true})
		api.Create(apitest.Node("a"))
		apitest.Settle(time.Hour)
		if got := rangesOf(api, "a"); got != "" {
			t.Errorf("got %q", got)
		}
	})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	at := func(n *corev1.Node, second int64) *corev1.Node {
		n.CreationTimestamp = metav1.Unix(second, 0)
		return n
	}
	young, old := at(self("a", "fd22:2222:2222:2::/64"), 2), at(self("b", "10.88.0.0/24", "fd11:1111:1111:1::/64"), 1)
	given := at(apitest.Node("c"), 0)
	given.Spec.PodCIDRs = []string{"fd33:3333:3333:3::/64"}
	for _, tt := range []struct {
		name     string
		nodes    []*corev1.Node
		services []netip.Prefix
		want     []netip.Prefix
	}{
		{"no Services", nil, nil, prefixes("10.88.0.0/13")},
		{"IPv4", []*corev1.Node{old}, prefixes("10.96.0.0/16"), prefixes("10.88.0.0/13")},
		{"the oldest node that has chosen", []*corev1.Node{given, young, old}, prefixes("fd00:96::/112", "10.96.0.0/16"),
			prefixes("fd11:1111:1111::/48", "10.88.0.0/13")},
		{"public ranges have no site", []*corev1.Node{self("a", "2001:db8:1:2::/64")}, prefixes("fd00:96::/112"),
			prefixes("fd02:cd6:27af::/48")},
		{"none has chosen", []*corev1.Node{given}, prefixes("fd00:96::/112"), prefixes("fd02:cd6:27af::/48")},
	} {
		got := Defaults(tt.nodes, tt.services)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cluster string
		bits    int
		i       uint32
		want    string
	}{
		{"10.88.0.0/13", 24, 0, "10.88.0.0/24"},
		{"10.88.0.0/13", 24, 2047, "10.95.255.0/24"},
		{"10.88.0.0/13", 26, 5, "10.88.1.64/26"},
		{"fd12:3456:789a::/48", 64, 65535, "fd12:3456:789a:ffff::/64"},
		{"fd12:3456:789a::/48", 48, 0, "fd12:3456:789a::/48"},
	} {
		if got := part(netip.MustParsePrefix(tt.cluster), tt.bits, tt.i).String(); got != tt.want {
			t.Errorf("part %d of %s is %s, want %s", tt.i, tt.cluster, got, tt.want)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"": true, "10.0.0.0/8": true, "10.0.0.0/8, fd00::/48": true, "fd00::/48,10.0.0.0/8": true,
		"10.0.0.0/8,11.0.0.0/8": false, "10.0.0.1/8": false, "ten": false, "10.0.0.0/8,": false,
	} {
		if _, err := ParseClusters(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, tt := range []struct {
		clusters []netip.Prefix
		is4      bool
		bits     int
		ok       bool
	}{
		{nil, true, 24, true}, {nil, true, 12, false}, {nil, true, 31, false},
		{nil, false, 64, true}, {nil, false, 65, false},
		{prefixes("10.0.0.0/8"), true, 24, true}, {prefixes("10.0.0.0/8"), true, 25, false},
		{prefixes("10.0.0.0/8"), false, 99, true}, {prefixes("10.0.0.0/24"), true, 23, false},
	} {
		if err := CheckBits(tt.clusters, tt.is4, tt.bits); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
