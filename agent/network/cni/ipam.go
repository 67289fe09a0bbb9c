package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"monopod/agent/network/cni/rules"
	"monopod/agent/network/cni/subnets"

	"golang.org/x/sys/unix"
)

var errPoolEmpty = errors.New("no free address")

// holder is the content of ips/<address>: the container that holds it. An address is
// leaked when its namespace is gone or the machine has rebooted since.
type holder struct {
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	Boot      string `json:"boot"`
	Ports     bool   `json:"ports,omitempty"` // it has host ports
	// HostPorts are written again when another program removes them from the kernel. Files of earlier versions have only Ports.
	HostPorts []rules.Port `json:"hostPorts,omitempty"`
	Pod       podRef       `json:"pod,omitzero"`

	unread bool // the file cannot be read now, so the address counts as used
}

func (h holder) is(container, ifname string) bool {
	return h.Container == container && h.IfName == ifname
}

func (h holder) gone(boot string) bool {
	if h.unread {
		return false
	}
	if h.Boot != boot {
		return true
	}
	_, err := os.Stat(h.Netns)
	return errors.Is(err, fs.ErrNotExist)
}

func (n Network) ipDir() string { return filepath.Join(n.Dir, "ips") }

func (n Network) ipFile(ip netip.Addr) string { return filepath.Join(n.ipDir(), ip.String()) }

// locked runs f under the lock of all addresses.
func (n Network) locked(f func() error) error {
	lock, err := os.OpenFile(filepath.Join(n.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}

// allocate allocates an address of each subnet for h: the next free one after the last
// allocated, so that addresses are reused as late as possible. It first releases the
// container's previous addresses.
func (n Network) allocate(h holder) ([]netip.Addr, error) {
	var ips []netip.Addr
	err := n.locked(func() error {
		held, err := n.holders()
		if err != nil {
			return err
		}
		n.sweep(held, func(other holder) bool { return other.is(h.Container, h.IfName) })
		for _, subnet := range n.Subnets {
			ip, err := n.next(subnet, held)
			if errors.Is(err, errPoolEmpty) {
				n.sweep(held, func(other holder) bool { return other.gone(h.Boot) })
				ip, err = n.next(subnet, held)
			}
			if err == nil {
				err = n.hold(ip, h)
			}
			if err != nil {
				n.sweep(held, func(other holder) bool { return other.is(h.Container, h.IfName) })
				return err
			}
			held[ip] = h
			ips = append(ips, ip)
		}
		return nil
	})
	return ips, err
}

// hold writes the file of ip. No fsync: after a power failure the pod is gone too,
// and an empty file counts as leaked.
func (n Network) hold(ip netip.Addr, h holder) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := os.WriteFile(n.ipFile(ip), data, 0o644); err != nil {
		return err
	}
	return os.WriteFile(n.lastFile(ip.Is4()), []byte(ip.String()), 0o644)
}

// lastFile contains the last allocated address of a family.
func (n Network) lastFile(is4 bool) string {
	if is4 {
		return filepath.Join(n.Dir, "last")
	}
	return filepath.Join(n.Dir, "last-ipv6")
}

// used returns the addresses of pods that live; none before the first start.
func (n Network) used() ([]netip.Addr, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	held, err := n.holders()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []netip.Addr
	for ip, h := range held {
		if !h.gone(boot) {
			out = append(out, ip)
		}
	}
	return out, nil
}

// holders reads ips/. A file that cannot be parsed, for instance truncated by a
// crash, has a zero holder; one that cannot be read has an unknown holder.
func (n Network) holders() (map[netip.Addr]holder, error) {
	entries, err := os.ReadDir(n.ipDir())
	if err != nil {
		return nil, err
	}
	held := make(map[netip.Addr]holder, len(entries))
	for _, e := range entries {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		var h holder
		if data, err := os.ReadFile(n.ipFile(ip)); err != nil {
			h.unread = true
		} else if json.Unmarshal(data, &h) != nil {
			h = holder{}
		}
		held[ip] = h
	}
	return held, nil
}

// sweep releases the addresses whose holder matches, in held and on disk.
func (n Network) sweep(held map[netip.Addr]holder, match func(holder) bool) {
	for ip, h := range held {
		if match(h) && os.Remove(n.ipFile(ip)) == nil {
			delete(held, ip)
		}
	}
}

// next returns the first free address of a subnet after the last allocated one,
// wrapping around. The network address, the gateway and the broadcast address are never
// allocated.
func (n Network) next(subnet netip.Prefix, held map[netip.Addr]holder) (netip.Addr, error) {
	first := gateway(subnet)
	data, _ := os.ReadFile(n.lastFile(subnet.Addr().Is4())) // absent: from the start
	ip, err := netip.ParseAddr(strings.TrimSpace(string(data)))
	if err != nil || !allocatable(subnet, ip) {
		ip = first
	}
	for range subnets.Size(subnet) {
		if ip = ip.Next(); !allocatable(subnet, ip) {
			ip = first.Next()
		}
		if _, taken := held[ip]; !taken {
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s: %w", subnet, errPoolEmpty)
}

// allocatable reports whether an address at or after the gateway may be allocated.
func allocatable(subnet netip.Prefix, ip netip.Addr) bool {
	if subnet.Addr().Is4() {
		return subnet.Contains(ip.Next())
	}
	return netip.PrefixFrom(subnet.Masked().Addr(), max(subnet.Bits(), 112)).Contains(ip) // see subnets.Size
}

// release releases the container's addresses on ifname, if any. It removes host ports
// first, so as not to remove those of the address's next holder.
func (n Network) release(container, ifname string) error {
	err := n.locked(func() error {
		held, err := n.holders()
		if err != nil {
			return err
		}
		mine := func(h holder) bool { return h.is(container, ifname) }
		for ip, h := range held {
			if !mine(h) || !h.Ports {
				continue
			}
			if err := n.rules().RemovePorts(func(other netip.Addr) bool { return other == ip }); err != nil {
				return fmt.Errorf("host ports: %w", err)
			}
		}
		n.sweep(held, mine)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Reclaim releases every leaked address and removes its host ports.
func (n Network) Reclaim() error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	return n.locked(func() error {
		held, err := n.holders()
		if err != nil {
			return err
		}
		n.sweep(held, func(h holder) bool { return h.gone(boot) })
		return n.rules().RemovePorts(func(ip netip.Addr) bool { _, taken := held[ip]; return !taken })
	})
}

func bootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
