package cni

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// pool contains the subnets of all instances: 2,048 of /24, or fewer larger ones.
var pool = netip.MustParsePrefix("10.88.0.0/13")

// Config of an instance's network.
type Config struct {
	Dir        string // <data-dir>/cni, absolute
	ID         string // the instance: at most 10 bytes, fit for a link's name
	Executable string // the monopod program
	Pods       int    // maximum number; the subnet has at least twice as many addresses, and at least a /24's
	// Services are the address ranges of Services. Packets to an address there that
	// nothing serves are rejected.
	Services []netip.Prefix
	Log      *zap.Logger
}

// Prepare sets up the network of one instance and returns it. It chooses bridge and
// subnet, and keeps them unless another link now uses the subnet, or the subnet is
// too small and no address is in use. It writes conflist and plugins, reclaims leaked
// addresses, and sets up the bridge. It needs root.
func Prepare(cfg Config) (Network, error) {
	taken, err := takenSubnets(bridgeName(cfg.ID))
	if err != nil {
		return Network{}, err
	}
	old, err := loadFitting(cfg)
	if err != nil {
		return Network{}, err
	}
	n := choose(cfg, old, append(taken, cfg.Services...))
	n.Services = withoutPods(n.Subnet, cfg.Services)
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
	if err := n.Reclaim(); err != nil {
		return Network{}, fmt.Errorf("reclaim addresses: %w", err)
	}
	return n, n.setUp(cfg.Log)
}

// Remove removes the bridge and the nftables tables. Files stay.
func (n Network) Remove() error {
	var errs []error
	if link, err := netlink.LinkByName(n.Bridge); err == nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	errs = append(errs, n.removeTables())
	return errors.Join(errs...)
}

// RemoveIdle is Remove if no pod holds an address; otherwise it does nothing. It
// excludes a plugin that outlives its containerd and allocates an address at the same
// time.
func (n Network) RemoveIdle() error {
	return n.locked(func() error {
		idle, err := n.idle()
		if err != nil || !idle {
			return err
		}
		return n.Remove()
	})
}

func (n Network) idle() (bool, error) {
	held, err := n.holders()
	return len(held) == 0, err
}

// BridgePrefix begins the names of the bridges of all instances.
const BridgePrefix = "mp-"

func bridgeName(id string) string { return BridgePrefix + id }

// load returns the network chosen earlier, or a zero one.
func load(dir string) Network {
	var n Network
	data, err := os.ReadFile(filepath.Join(dir, "network.json"))
	if err != nil || json.Unmarshal(data, &n) != nil {
		return Network{}
	}
	return n
}

// loadFitting is load, but ignores a subnet that is too small unless pods use it.
func loadFitting(cfg Config) (Network, error) {
	n := load(cfg.Dir)
	if !n.Subnet.IsValid() || n.Subnet.Bits() <= bitsFor(cfg.Pods) {
		return n, nil
	}
	idle, err := n.idle()
	if errors.Is(err, fs.ErrNotExist) || err == nil && idle {
		return Network{}, nil
	}
	cfg.Log.Warn("pod network is smaller than twice --max-pods; it grows at the next start without pods", zap.Stringer("subnet", n.Subnet))
	return n, err
}

// bitsFor returns the length of the prefix that has twice as many addresses as pods,
// so that they are reused late: Kubernetes also uses a /24 for 110 pods.
func bitsFor(pods int) int {
	const gateway, own, broadcast = 1, 1, 1
	return min(24, 32-bits.Len(uint(2*pods+gateway+own+broadcast-1)))
}

// choose keeps the old subnet unless another link uses it; then it takes the first
// free one at or after the hash of the instance's name.
func choose(cfg Config, old Network, taken []netip.Prefix) Network {
	n := Network{Bridge: bridgeName(cfg.ID), Table: "monopod-" + cfg.ID, Dir: cfg.Dir, Subnet: old.Subnet}
	if old.Subnet.IsValid() && free(old.Subnet, taken) {
		return n
	}
	length := max(bitsFor(cfg.Pods), pool.Bits()+1)
	subnets := uint32(1) << (length - pool.Bits())
	start := hash(cfg.ID)
	for i := range subnets {
		n.Subnet = subnet((start+i)%subnets, length)
		if free(n.Subnet, taken) {
			break
		}
	}
	return n
}

// subnet returns the i-th subnet of the length in the pool.
func subnet(i uint32, length int) netip.Prefix {
	base := pool.Addr().As4()
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], binary.BigEndian.Uint32(base[:])+i<<(32-length))
	return netip.PrefixFrom(netip.AddrFrom4(ip), length)
}

func free(p netip.Prefix, taken []netip.Prefix) bool {
	for _, t := range taken {
		if t.Overlaps(p) {
			return false
		}
	}
	return true
}

func hash(s string) uint32 { // FNV-1a
	h := uint32(2166136261)
	for _, b := range []byte(s) {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}

// takenSubnets lists the subnets that other links of the host use or route to, except
// default routes.
func takenSubnets(bridge string) ([]netip.Prefix, error) {
	own := -1
	if link, err := netlink.LinkByName(bridge); err == nil {
		own = link.Attrs().Index
	}
	var taken []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		addrs, err := netlink.AddrList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("list addresses: %w", err)
		}
		for _, r := range routes {
			if p := prefix(r.Dst); r.LinkIndex != own && p.Bits() > 0 {
				taken = append(taken, p)
			}
		}
		for _, a := range addrs {
			if p := prefix(a.IPNet); a.LinkIndex != own && p.IsValid() {
				taken = append(taken, p)
			}
		}
	}
	return taken, nil
}

func prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	length, _ := n.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), length).Masked()
}

// setUp brings up the bridge with its address and, if the kernel supports it, address
// translation. It is idempotent and may run concurrently.
func (n Network) setUp(log *zap.Logger) error {
	bridge, err := n.ensureBridge()
	if err != nil {
		return fmt.Errorf("set up bridge %s: %w", n.Bridge, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(n.Gateway(), n.Subnet.Bits()))}
	if err := n.onlyAddress(bridge, addr); err != nil {
		return fmt.Errorf("set address of %s: %w", n.Bridge, err)
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set %s up: %w", n.Bridge, err)
	}
	// Pods are reached from the host without forwarding and translation.
	if err := sysctl("net/ipv4/ip_forward", "1"); err != nil {
		log.Warn("cannot enable IP forwarding: pods cannot reach other hosts", zap.Error(err))
	}
	if err := n.setUpNAT(); err != nil {
		log.Warn("cannot set up address translation: pods can communicate only with this host", zap.Error(err))
	}
	if err := n.setUpServices(log); err != nil {
		log.Warn("cannot reject connections to Services without endpoints: they may be routed out of this host", zap.Error(err))
	}
	return nil
}

// ensureBridge creates the bridge with a fixed MAC address: by default a bridge takes
// that of its lowest port, which changes with the pods.
func (n Network) ensureBridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(n.Bridge)
	if err == nil {
		return link, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = n.Bridge, hardwareAddr(n.Gateway())
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	return netlink.LinkByName(n.Bridge)
}

// onlyAddress sets the link's address to want and removes its other IPv4 addresses.
func (n Network) onlyAddress(link netlink.Link, want *netlink.Addr) error {
	have, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return err
	}
	for _, a := range have {
		if a.IPNet.String() == want.IPNet.String() {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return err
		}
	}
	err = netlink.AddrReplace(link, want)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// hardwareAddr derives a MAC from the IP address, as Docker and Kubernetes' bridge
// plugin do: a reused IP address keeps its MAC, so no ARP table goes stale.
func hardwareAddr(ip netip.Addr) net.HardwareAddr {
	b := ip.As4()
	return append(net.HardwareAddr{0x0a, 0x58}, b[:]...)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sysctl writes value to /proc/sys/<name> unless it is already set.
func sysctl(name, value string) error {
	file := filepath.Join("/proc/sys", name)
	old, err := os.ReadFile(file)
	if err == nil && strings.TrimSpace(string(old)) == value {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(file, []byte(value), 0o644)
}
