package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

// away is a client of an API server that cannot be reached.
type away struct{ client.Client }

// Get implements client.Client.
func (away) Get(context.Context, client.Ref) (client.Object, error) {
	return nil, errors.New("connection refused")
}

func joinedNode(api client.Client) *Node {
	return NewNode(NodeDeps{Client: api, Log: zap.NewNop(), Metrics: prometheus.NewRegistry()},
		NodeConfig{PodCIDRsFromNode: true, Settings: Settings{Runtime: NoRuntime, NodeName: "n"}})
}

// A node that joined waits for the ranges of its Node. With those of an earlier start it does not need the API server.
func TestRangesOfANodeThatJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resources := registry.Resources()
		s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
		defer s.Close()
		api := registry.New(s, resources, registry.Config{})
		n := joinedNode(api)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		type result struct {
			ranges []netip.Prefix
			err    error
		}
		done := make(chan result, 1)
		get := func(n *Node, previous ...netip.Prefix) {
			ranges, err := n.givenPodCIDRs(ctx, previous)
			done <- result{ranges, err}
		}
		go get(n)
		time.Sleep(time.Hour)
		if _, err := api.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		select {
		case r := <-done:
			t.Fatalf("ranges %v, %v without any in the Node", r.ranges, r.err)
		default:
		}
		_, err := client.Update(ctx, api, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, "",
			func(node *corev1.Node) error {
				node.Spec.PodCIDRs = []string{"10.88.5.0/24", "fd88:5::/64"}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		want := []netip.Prefix{netip.MustParsePrefix("10.88.5.0/24"), netip.MustParsePrefix("fd88:5::/64")}
		if r := <-done; !slices.Equal(r.ranges, want) || r.err != nil {
			t.Errorf("ranges %v, %v, want %v", r.ranges, r.err, want)
		}
		previous := netip.MustParsePrefix("10.88.9.0/24")
		get(n, previous)
		if r := <-done; !slices.Equal(r.ranges, want) {
			t.Errorf("at the next start: ranges %v, %v, want those of the Node", r.ranges, r.err)
		}
		get(joinedNode(away{api}), previous)
		if r := <-done; !slices.Equal(r.ranges, []netip.Prefix{previous}) || r.err != nil {
			t.Errorf("without the API server: ranges %v, %v, want those of the last start", r.ranges, r.err)
		}
	})
}

func TestWhoChoosesTheRanges(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fromNode bool
		cidr     string
		want     bool
	}{{false, "", true}, {true, "", false}, {true, "10.1.0.0/16", true}, {false, "10.1.0.0/16", true}} {
		n := &Node{cfg: NodeConfig{PodCIDRsFromNode: tt.fromNode, Settings: Settings{Network: PodNetwork{PodCIDR: tt.cidr}}}}
		if err := n.cfg.Settings.Network.complete(110); err != nil {
			t.Fatal(err)
		}
		if got := n.choosesPodCIDRs(); got != tt.want {
			t.Errorf("from the Node %v, --pod-cidr=%q: the node chooses: %v, want %v", tt.fromNode, tt.cidr, got, tt.want)
		}
	}
}

func TestNodeNetworkFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		network PodNetwork
		ok      bool
	}{
		{PodNetwork{}, true}, {PodNetwork{NodeNetwork: "wireguard", WireGuardEndpoint: "203.0.113.5:51820"}, true},
		{PodNetwork{NodeNetwork: "none"}, true}, {PodNetwork{NodeNetwork: "ipsec"}, false},
		{PodNetwork{WireGuardEndpoint: "203.0.113.5"}, false}, {PodNetwork{WireGuardEndpoint: "vpn.example:51820"}, false},
	} {
		if err := tt.network.complete(110); (err == nil) != tt.ok {
			t.Errorf("%+v: %v", tt.network, err)
		}
	}
}
