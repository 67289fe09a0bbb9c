package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"monopod/agent/network/cni/ipam"
	"monopod/agent/network/cni/rules"
	"monopod/agent/network/nft"
	"monopod/agent/network/retry"
)

// Config of an instance's network.
type Config struct {
	Dir        string // <data-dir>/cni, absolute
	ID         string // the instance: at most 10 bytes, fit for a link's name
	Executable string // the monopod program
	Pods       int    // maximum number; a chosen IPv4 subnet has at least twice as many addresses, and at least a /24's
	// Subnets are the ranges of pods, one or two of different IP families; empty: one is chosen for each family of
	// Services.
	Subnets []netip.Prefix
	// Services are the address ranges of Services. Packets to unserved addresses there are rejected.
	Services []netip.Prefix
	Admin    bool // pods have a network of the administrator
	Log      *zap.Logger
}

// Prepare sets up the network of one instance and returns it. It chooses bridge and subnets, the previous ones if
// possible, writes conflist and plugins, reclaims leaked addresses, and sets up the bridge. It needs root, and for an
// IPv6 subnet a kernel with IPv6.
func Prepare(cfg Config) (Network, error) {
	n := Network{Bridge: BridgePrefix + cfg.ID, Table: "monopod-" + cfg.ID, Dir: cfg.Dir, Admin: cfg.Admin}
	taken, err := ipam.Taken(n.links()...)
	if err != nil {
		return Network{}, err
	}
	used, err := n.pool().Used()
	if err != nil {
		return Network{}, err
	}
	n.Subnets = ipam.Plan{
		ID: cfg.ID, Pods: cfg.Pods, Configured: cfg.Subnets, Services: cfg.Services, Previous: load(cfg.Dir).Subnets,
		Used: used, Taken: append(taken, cfg.Services...), Log: cfg.Log,
	}.Choose()
	_, noIPv6 := os.Stat("/proc/sys/net/ipv6")
	if noIPv6 != nil && slices.ContainsFunc(n.Subnets, ipam.SameFamily(false)) {
		return Network{}, fmt.Errorf("pods cannot have addresses in %s: the kernel has no IPv6 (ipv6.disable=1); enable it, "+
			"or configure only IPv4 ranges with --pod-cidr and --service-cluster-ip-range", ipam.Find(n.Subnets, false))
	}
	n.Services = ipam.WithoutPods(n.Subnets, cfg.Services)
	if err := n.writeFiles(cfg.Executable); err != nil {
		return Network{}, fmt.Errorf("prepare pod network: %w", err)
	}
	data, err := json.Marshal(n)
	if err != nil {
		return Network{}, err
	}
	if err := writeFile(filepath.Join(n.Dir, "network.json"), data); err != nil {
		return Network{}, fmt.Errorf("prepare pod network: %w", err)
	}
	if err := errors.Join(n.Reclaim(), reclaimIFBs(n.Bridge)); err != nil {
		return Network{}, fmt.Errorf("reclaim addresses: %w", err)
	}
	if foreign := n.Foreign(); foreign != "" {
		cfg.Log.Info("pods use the CNI configuration of an administrator",
			zap.String("file", filepath.Join(n.ConfDir(), foreign)))
	}
	if err := n.setUp(cfg.Log); err != nil {
		return n, err
	}
	if err := n.pool().Lock(n.restorePorts); err != nil {
		cfg.Log.Warn("failed to restore the host ports of running pods", zap.Error(err))
	}
	return n, nil
}

// Remove removes the bridge, the tunnels and routes to other nodes, the nftables tables and the routing rules. Files
// stay.
func (n Network) Remove() error {
	errs := []error{n.removeOthers(), RemoveLink(n.Bridge)}
	for _, table := range []string{n.ServiceTable(), n.PolicyTable()} {
		errs = append(errs, nft.RemoveTables(table, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6))
	}
	errs = append(errs, n.setRoutingRules(nil), n.rules().Remove(), nft.RemoveTables(n.Table, nftables.TableFamilyBridge))
	return errors.Join(errs...)
}

// RemoveIdle calls Remove if no pod has an address. It holds the lock of the addresses: a plugin that outlives its
// containerd may allocate one at the same time.
func (n Network) RemoveIdle() error {
	return n.pool().Lock(func() error {
		holders, err := n.pool().Holders()
		if err != nil || len(holders) > 0 {
			return err
		}
		return n.Remove()
	})
}

// BridgePrefix is the prefix of the names of the bridges of all instances.
const BridgePrefix = "mp-"

// Previous returns the ranges of pods at the previous start; none at the first one.
func Previous(dir string) []netip.Prefix { return load(dir).Subnets }

// load returns the network of the previous start, or a zero one.
func load(dir string) Network {
	var n Network
	data, err := os.ReadFile(filepath.Join(dir, "network.json"))
	if err != nil || json.Unmarshal(data, &n) != nil {
		return Network{}
	}
	return n
}

// setUp brings up the bridge with its addresses and, if the kernel supports it, address translation. It is idempotent
// and may run concurrently.
func (n Network) setUp(log *zap.Logger) error {
	bridge, err := n.ensureBridge()
	if err != nil {
		return fmt.Errorf("set up bridge %s: %w", n.Bridge, err)
	}
	if slices.ContainsFunc(n.Subnets, ipam.SameFamily(false)) {
		if err := sysctls(ipv6Sysctls(n.Bridge)); err != nil {
			return fmt.Errorf("set up IPv6 of %s: %w", n.Bridge, err)
		}
	}
	if err := n.setAddresses(bridge); err != nil {
		return fmt.Errorf("set addresses of %s: %w", n.Bridge, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", n.Bridge, err)
	}
	if err := n.fitMTU(bridge); err != nil {
		log.Warn("failed to set the MTU of the pod network to that of the default route: packets may be fragmented",
			zap.Error(err))
	}
	if err := n.routeServices(bridge); err != nil {
		log.Warn("failed to add routes to Services: this host does not reach them while it has no default route",
			zap.Error(err))
	}
	// The host reaches pods even without forwarding and translation, so that failures are only logged.
	for _, subnet := range n.Subnets {
		if err := enableForwarding(subnet.Addr().Is4()); err != nil {
			log.Warn("failed to enable IP forwarding: pods cannot reach other hosts", zap.Stringer("subnet", subnet),
				zap.Error(err))
		}
	}
	taken, err := ipam.Taken(n.links()...)
	if err != nil {
		return err
	}
	n.natRules().SetUp(taken, log)
	if err := rules.SetUp(n.Table, bridge); err != nil {
		log.Warn("failed to isolate pods at the link layer: programs in pods may evade NetworkPolicies",
			zap.Error(err))
	}
	return nil
}

// ensureBridge creates the bridge with a fixed MAC address: by default a bridge has the lowest one of its ports, which
// changes with the pods.
func (n Network) ensureBridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(n.Bridge)
	if err == nil {
		return link, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = n.Bridge, hardwareAddr(n.Gateways())
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return netlink.LinkByName(n.Bridge)
}

// setAddresses gives the bridge the gateways' addresses, and removes others except link-local ones.
func (n Network) setAddresses(link netlink.Link) error {
	have, err := retry.All(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	var want []string
	for _, subnet := range n.Subnets {
		want = append(want, netip.PrefixFrom(ipam.Gateway(subnet), subnet.Bits()).String())
	}
	for _, a := range have {
		if a.IP.IsLinkLocalUnicast() || slices.Contains(want, a.IPNet.String()) {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	for _, subnet := range n.Subnets {
		err := netlink.AddrReplace(link, address(netip.PrefixFrom(ipam.Gateway(subnet), subnet.Bits())))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
	return nil
}

// address returns an address of a link that is used at once, without duplicate address detection for IPv6.
func address(ip netip.Prefix) *netlink.Addr {
	a := &netlink.Addr{IPNet: ipam.IPNet(ip)}
	if ip.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// hardwareAddr derives a MAC from the first IP address, as Docker and Kubernetes' bridge plugin do: a reused IP address
// keeps its MAC, so that no ARP table becomes stale.
func hardwareAddr(ips []netip.Addr) net.HardwareAddr {
	b := ips[0].AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, b[len(b)-4:]...)
}

// setting is a file below /proc/sys and its value.
type setting struct{ name, value string }

// ipv6Sysctls returns the settings of a link of the pod network. They disable autoconfiguration: router advertisements
// of another pod never change its addresses and routes.
func ipv6Sysctls(link string) []setting {
	dir := "net/ipv6/conf/" + link + "/"
	return []setting{{dir + "disable_ipv6", "0"}, {dir + "accept_ra", "0"}, {dir + "accept_dad", "0"}}
}

// enableForwarding lets the host forward packets of a family. A host that forwards IPv6 would drop the default routes
// that routers advertised, unless accept_ra is 2.
func enableForwarding(is4 bool) error {
	if is4 {
		return sysctls([]setting{{"net/ipv4/ip_forward", "1"}})
	}
	const all, links = "net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv6/conf"
	if value(all) == "1" {
		return nil
	}
	dirs, err := os.ReadDir(links)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		if name := "net/ipv6/conf/" + d.Name() + "/accept_ra"; d.Name() != "all" && value(name) == "1" {
			if err := sysctls([]setting{{name, "2"}}); err != nil && !errors.Is(err, fs.ErrNotExist) { // the link is gone
				return err
			}
		}
	}
	return sysctls([]setting{{all, "1"}})
}

func value(name string) string {
	data, _ := os.ReadFile(filepath.Join("/proc/sys", name)) // empty if there is no such setting
	return strings.TrimSpace(string(data))
}

// sysctls writes the settings that have another value.
func sysctls(settings []setting) error {
	for _, s := range settings {
		if value(s.name) == s.value {
			continue
		}
		if err := os.WriteFile(filepath.Join("/proc/sys", s.name), []byte(s.value), 0o644); err != nil {
			return err
		}
	}
	return nil
}
