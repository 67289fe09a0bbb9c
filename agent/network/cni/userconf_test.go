package cni

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"monopod/agent/network/cni/ipam"

	"github.com/vishvananda/netlink"
)

// A CNI configuration of the user takes precedence, regardless of its name.
func TestForeignConfiguration(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, netip.MustParsePrefix("10.88.7.0/24"))
	if got := n.Foreign(); got != "" {
		t.Errorf("without files: %q", got)
	}
	for _, tt := range []struct{ file, want string }{
		{"README", ""}, {"calico-kubeconfig", ""}, {"z.conflist.bak", ""}, {"weave.conf", "weave.conf"},
		{"10-flannel.conflist", "10-flannel.conflist"},
	} {
		if err := os.WriteFile(filepath.Join(n.ConfDir(), tt.file), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := n.Foreign(); got != tt.want {
			t.Errorf("with %s: %q, want %q", tt.file, got, tt.want)
		}
	}
}

func TestPluginsOfTheMachineAreLinked(t *testing.T) {
	t.Parallel()
	n := testNetwork(t, netip.MustParsePrefix("10.88.7.0/24"))
	first, second := t.TempDir(), t.TempDir()
	for _, file := range []string{filepath.Join(first, "test-bridge"), filepath.Join(first, loopbackName),
		filepath.Join(second, "test-bridge"), filepath.Join(second, "test-flannel")} {
		if err := os.WriteFile(file, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	link := func() {
		t.Helper()
		if err := n.linkPlugins([]string{first, second, "/not/there"}); err != nil {
			t.Fatal(err)
		}
	}
	target := func(name string) string {
		out, _ := os.Readlink(filepath.Join(n.BinDir(), name))
		return out
	}
	link()
	link()
	if b, f := target("test-bridge"), target("test-flannel"); b != filepath.Join(first, "test-bridge") ||
		f != filepath.Join(second, "test-flannel") {
		t.Errorf("bridge links to %q, flannel to %q", b, f)
	}
	if l := target(loopbackName); filepath.Dir(l) == first {
		t.Errorf("a link to %s replaced the loopback plugin of monopod", l)
	}
	if err := os.Remove(filepath.Join(second, "test-flannel")); err != nil {
		t.Fatal(err)
	}
	link()
	if f := target("test-flannel"); f != "" {
		t.Errorf("flannel still links to %q", f)
	}
}

// With a CNI configuration of the user, addresses on links other than that of the default route belong to pods.
func TestHoldsAddressesOfPods(t *testing.T) {
	t.Parallel()
	onHost(t, func() {
		outside(t, "holds", 1500)
		n := prepare(t, ranges...)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "cni0"
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		subnet := netip.MustParsePrefix("10.22.0.0/24")
		if err := netlink.LinkAdd(bridge); err != nil {
			t.Error(err)
		}
		if err := netlink.AddrAdd(bridge, address(netip.PrefixFrom(ipam.Gateway(subnet), subnet.Bits()))); err != nil {
			t.Error(err)
		}
		if err := netlink.LinkSetUp(bridge); err != nil {
			t.Error(err)
		}
		holds := func(when string, want map[string]bool) {
			for ip, want := range want {
				if got := n.Holds(netip.MustParseAddr(ip)); got != want {
					t.Errorf("%s: Holds(%s) is %t, want %t", when, ip, got, want)
				}
			}
		}
		own := n.Gateways()[1].Next().String()
		holds("network of monopod", map[string]bool{own: true, "10.22.0.7": false, "203.0.113.2": false, "8.8.8.8": false})
		if err := os.WriteFile(filepath.Join(n.ConfDir(), "10-x.conflist"), nil, 0o600); err != nil {
			t.Error(err)
		}
		holds("network of the user",
			map[string]bool{own: true, "10.22.0.7": true, "203.0.113.2": false, "2001:db8::2": false, "8.8.8.8": false})
	})
}
