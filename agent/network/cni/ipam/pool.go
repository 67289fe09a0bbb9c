// Package ipam allocates the addresses of pods. Its state is in files, so that the plugin can allocate while monopod
// does not run.
//
//   - subnets.go: chooses the subnets of a pod network
package ipam

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

	"golang.org/x/sys/unix"
)

var errPoolEmpty = errors.New("no free address")

// Holder is the content of ips/<address>: the container that holds it. An address is
// leaked when its namespace is gone or the machine has rebooted since.
type Holder struct {
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	Boot      string `json:"boot"`
	Ports     bool   `json:"ports,omitempty"` // it has host ports
	// HostPorts are written again when another program removes them from the kernel. Files of earlier versions have only
	// Ports.
	HostPorts []rules.Port `json:"hostPorts,omitempty"`
	Pod       PodRef       `json:"pod,omitzero"`

	unread bool // reading the file failed, so the address counts as used
}

// Is reports whether the address belongs to an interface of a container.
func (h Holder) Is(container, ifname string) bool {
	return h.Container == container && h.IfName == ifname
}

// Gone reports whether the address is leaked.
func (h Holder) Gone(boot string) bool {
	if h.unread {
		return false
	}
	if h.Boot != boot {
		return true
	}
	_, err := os.Stat(h.Netns)
	return errors.Is(err, fs.ErrNotExist)
}

// Pool allocates the addresses of one data folder's subnets. Its state is the folder ips below Dir: a file for each
// address that a container holds. Processes exclude each other by a lock on a file.
type Pool struct {
	Dir     string         // that of the Network
	Subnets []netip.Prefix // one or two, of different IP families
}

// Folder contains a file for each address that a container holds.
func (p Pool) Folder() string { return filepath.Join(p.Dir, "ips") }

// File describes the container that holds an address.
func (p Pool) File(ip netip.Addr) string { return filepath.Join(p.Folder(), ip.String()) }

// Lock runs f under the lock of all addresses.
func (p Pool) Lock(f func() error) error {
	lock, err := os.OpenFile(filepath.Join(p.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close() // unlocks
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	return f()
}

// change runs f under the lock with the holders of all addresses, of which there are at most as many as pods.
func (p Pool) change(f func(held map[netip.Addr]Holder) error) error {
	return p.Lock(func() error {
		held, err := p.Holders()
		if err != nil {
			return err
		}
		return f(held)
	})
}

// Allocate allocates an address of each subnet for h: the next free one after the last
// allocated, so that addresses are reused as late as possible. It first releases the
// container's previous addresses.
func (p Pool) Allocate(h Holder) ([]netip.Addr, error) {
	var ips []netip.Addr
	err := p.change(func(held map[netip.Addr]Holder) error {
		p.sweep(held, func(other Holder) bool { return other.Is(h.Container, h.IfName) })
		for _, subnet := range p.Subnets {
			ip, err := p.next(subnet, held)
			if errors.Is(err, errPoolEmpty) {
				p.sweep(held, func(other Holder) bool { return other.Gone(h.Boot) })
				ip, err = p.next(subnet, held)
			}
			if err == nil {
				err = p.hold(ip, h)
			}
			if err != nil {
				p.sweep(held, func(other Holder) bool { return other.Is(h.Container, h.IfName) })
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
// and an empty file is a leaked address.
func (p Pool) hold(ip netip.Addr, h Holder) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.File(ip), data, 0o644); err != nil {
		_ = os.Remove(p.File(ip)) // on a full disk it is there, and empty
		return err
	}
	// Not truncated, because ext4 writes such a file to the disk when it is closed.
	last, err := os.OpenFile(p.lastFile(ip.Is4()), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(last, "%-*s\n", longest, ip)
	return errors.Join(err, last.Close())
}

// longest is the length of the longest text of an address.
const longest = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// lastFile contains the last allocated address of a family.
func (p Pool) lastFile(is4 bool) string {
	if is4 {
		return filepath.Join(p.Dir, "last")
	}
	return filepath.Join(p.Dir, "last-ipv6")
}

// Used returns the addresses of pods that live; none before the first start.
func (p Pool) Used() ([]netip.Addr, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	held, err := p.Holders()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []netip.Addr
	for ip, h := range held {
		if !h.Gone(boot) {
			out = append(out, ip)
		}
	}
	return out, nil
}

// Holders reads ips/. A file that cannot be parsed, for instance truncated by a
// crash, has a zero holder; one that cannot be read has an unknown holder.
func (p Pool) Holders() (map[netip.Addr]Holder, error) {
	entries, err := os.ReadDir(p.Folder())
	if err != nil {
		return nil, err
	}
	held := make(map[netip.Addr]Holder, len(entries))
	for _, e := range entries {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		var h Holder
		if data, err := os.ReadFile(p.File(ip)); err != nil {
			h.unread = true
		} else if json.Unmarshal(data, &h) != nil {
			h = Holder{}
		}
		held[ip] = h
	}
	return held, nil
}

// sweep releases the addresses whose holder matches, in held and on disk.
func (p Pool) sweep(held map[netip.Addr]Holder, match func(Holder) bool) {
	for ip, h := range held {
		if match(h) && os.Remove(p.File(ip)) == nil {
			delete(held, ip)
		}
	}
}

// next returns the first free address of a subnet after the last allocated one,
// wrapping around. The network address, the gateway and the broadcast address are never
// allocated.
func (p Pool) next(subnet netip.Prefix, held map[netip.Addr]Holder) (netip.Addr, error) {
	first := Gateway(subnet)
	data, _ := os.ReadFile(p.lastFile(subnet.Addr().Is4())) // absent: from the start
	ip, err := netip.ParseAddr(strings.TrimSpace(string(data)))
	if err != nil || !allocatable(subnet, ip) {
		ip = first
	}
	for range Size(subnet) {
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

// Release releases the container's addresses on ifname, if any. Before an address that has host ports, it calls
// removePorts, so that the ports of the address's next holder stay.
func (p Pool) Release(container, ifname string, removePorts func(netip.Addr) error) error {
	err := p.change(func(held map[netip.Addr]Holder) error {
		mine := func(h Holder) bool { return h.Is(container, ifname) }
		for ip, h := range held {
			if !mine(h) || !h.Ports {
				continue
			}
			if err := removePorts(ip); err != nil {
				return fmt.Errorf("host ports: %w", err)
			}
		}
		p.sweep(held, mine)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Reclaim releases every leaked address and calls removePorts for all that are free.
func (p Pool) Reclaim(removePorts func(free func(netip.Addr) bool) error) error {
	boot, err := BootID()
	if err != nil {
		return err
	}
	return p.change(func(held map[netip.Addr]Holder) error {
		p.sweep(held, func(h Holder) bool { return h.Gone(boot) })
		return removePorts(func(ip netip.Addr) bool { _, taken := held[ip]; return !taken })
	})
}

// BootID returns the ID of the current boot of the machine.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
