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

// Holder is the content of ips/<address>: the container that has the address. An address is leaked when its network
// namespace no longer exists or the machine has rebooted since.
type Holder struct {
	Container string `json:"container"`
	IfName    string `json:"ifname"`
	Netns     string `json:"netns"`
	Boot      string `json:"boot"`
	Ports     bool   `json:"ports,omitempty"` // reports whether it has host ports
	// HostPorts are restored when another program removes them from the kernel. Files of earlier versions contain only
	// Ports.
	HostPorts []rules.Port `json:"hostPorts,omitempty"`
	Pod       PodRef       `json:"pod,omitzero"`

	unread bool // reading the file failed, so the address counts as used
}

// Is reports whether the address belongs to the interface of the container.
func (h Holder) Is(container, ifname string) bool {
	return h.Container == container && h.IfName == ifname
}

// Leaked reports whether the address is leaked; boot is the BootID.
func (h Holder) Leaked(boot string) bool {
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
// allocated address. Processes exclude each other by a lock on a file.
type Pool struct {
	Dir     string         // the folder of the Network
	Subnets []netip.Prefix // one or two, of different IP families
}

// Folder contains a file for each allocated address.
func (p Pool) Folder() string { return filepath.Join(p.Dir, "ips") }

// File contains the Holder of an address.
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

// withHolders runs f under the lock, with the holders of all allocated addresses.
func (p Pool) withHolders(f func(holders map[netip.Addr]Holder) error) error {
	return p.Lock(func() error {
		holders, err := p.Holders()
		if err != nil {
			return err
		}
		return f(holders)
	})
}

// Allocate allocates an address of each subnet for h: that which its pod had before the last Reclaim, or the next free
// one after the last allocated one, so that addresses are reused as late as possible. It first releases the container's
// previous addresses.
func (p Pool) Allocate(h Holder) ([]netip.Addr, error) {
	var ips []netip.Addr
	err := p.withHolders(func(holders map[netip.Addr]Holder) error {
		p.sweep(holders, func(other Holder) bool { return other.Is(h.Container, h.IfName) })
		former := p.former()
		for _, subnet := range p.Subnets {
			ip, err := formerOf(former, h.Pod, subnet, holders)
			if err != nil {
				ip, err = p.next(subnet, holders)
			}
			if errors.Is(err, errPoolEmpty) {
				p.sweep(holders, func(other Holder) bool { return other.Leaked(h.Boot) })
				ip, err = p.next(subnet, holders)
			}
			if err == nil {
				err = p.hold(ip, h)
			}
			if err != nil {
				p.sweep(holders, func(other Holder) bool { return other.Is(h.Container, h.IfName) })
				return err
			}
			holders[ip] = h
			ips = append(ips, ip)
		}
		return nil
	})
	return ips, err
}

// hold writes the file of ip. It needs no fsync: after a power failure the pod no longer exists, and an empty file is a
// leaked address.
func (p Pool) hold(ip netip.Addr, h Holder) error {
	data, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.File(ip), data, 0o644); err != nil {
		_ = os.Remove(p.File(ip)) // a full disk leaves an empty file
		return err
	}
	// The file is not truncated, because ext4 writes a truncated file to the disk when it is closed.
	last, err := os.OpenFile(p.lastFile(ip.Is4()), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(last, "%-*s\n", maxAddressLength, ip)
	return errors.Join(err, last.Close())
}

// maxAddressLength is the length of the longest text of an address.
const maxAddressLength = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// lastFile contains the last allocated address of a family.
func (p Pool) lastFile(is4 bool) string {
	if is4 {
		return filepath.Join(p.Dir, "last")
	}
	return filepath.Join(p.Dir, "last-ipv6")
}

// Used returns the addresses of existing pods; none before the first start.
func (p Pool) Used() ([]netip.Addr, error) {
	boot, err := BootID()
	if err != nil {
		return nil, err
	}
	holders, err := p.Holders()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []netip.Addr
	for ip, h := range holders {
		if !h.Leaked(boot) {
			out = append(out, ip)
		}
	}
	return out, nil
}

// Holders reads ips/. A file that cannot be parsed, for instance because a crash truncated it, has a zero Holder; a
// file that cannot be read counts as used.
func (p Pool) Holders() (map[netip.Addr]Holder, error) {
	entries, err := os.ReadDir(p.Folder())
	if err != nil {
		return nil, err
	}
	holders := make(map[netip.Addr]Holder, len(entries))
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
		holders[ip] = h
	}
	return holders, nil
}

// sweep releases the addresses whose holder matches, in the map and on disk.
func (p Pool) sweep(holders map[netip.Addr]Holder, match func(Holder) bool) {
	for ip, h := range holders {
		if match(h) && os.Remove(p.File(ip)) == nil {
			delete(holders, ip)
		}
	}
}

// next returns the first free address of a subnet after the last allocated one, wrapping around. The network address,
// the gateway and the broadcast address are never allocated.
func (p Pool) next(subnet netip.Prefix, holders map[netip.Addr]Holder) (netip.Addr, error) {
	first := Gateway(subnet)
	data, _ := os.ReadFile(p.lastFile(subnet.Addr().Is4())) // without the file, the search starts at the first address
	ip, err := netip.ParseAddr(strings.TrimSpace(string(data)))
	if err != nil || !allocatable(subnet, ip) {
		ip = first
	}
	for range Size(subnet) {
		if ip = ip.Next(); !allocatable(subnet, ip) {
			ip = first.Next()
		}
		if _, taken := holders[ip]; !taken {
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
	return netip.PrefixFrom(subnet.Masked().Addr(), max(subnet.Bits(), 112)).Contains(ip) // see Size
}

// Release releases the container's addresses on ifname, if any. It first calls removePorts for addresses with host
// ports, so that it never removes the ports of an address's next holder.
func (p Pool) Release(container, ifname string, removePorts func(netip.Addr) error) error {
	err := p.withHolders(func(holders map[netip.Addr]Holder) error {
		match := func(h Holder) bool { return h.Is(container, ifname) }
		for ip, h := range holders {
			if !match(h) || !h.Ports {
				continue
			}
			if err := removePorts(ip); err != nil {
				return fmt.Errorf("host ports: %w", err)
			}
		}
		p.sweep(holders, match)
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// formerFile contains the pods of the addresses that the last Reclaim released, by address. After a reboot a pod gets its
// address back: Services lead to it even if no API server can be told another one.
func (p Pool) formerFile() string { return filepath.Join(p.Dir, "former.json") }

// former reads the formerFile; none if it is missing or damaged.
func (p Pool) former() (pods map[netip.Addr]PodRef) {
	data, err := os.ReadFile(p.formerFile())
	if err != nil || json.Unmarshal(data, &pods) != nil {
		return nil
	}
	return pods
}

// formerOf returns the former address of a pod in a subnet, if it is free.
func formerOf(former map[netip.Addr]PodRef, pod PodRef, subnet netip.Prefix, holders map[netip.Addr]Holder) (netip.Addr,
	error) {
	for ip, of := range former {
		if _, taken := holders[ip]; of == pod && pod.UID != "" && subnet.Contains(ip) && !taken {
			return ip, nil
		}
	}
	return netip.Addr{}, errPoolEmpty
}

// keepFormer writes the formerFile. Without it, pods get other addresses: a full disk is no failure.
func (p Pool) keepFormer(holders map[netip.Addr]Holder, leaked func(Holder) bool) {
	pods := map[netip.Addr]PodRef{}
	for ip, h := range holders {
		if leaked(h) && h.Pod.UID != "" {
			pods[ip] = h.Pod
		}
	}
	if len(pods) == 0 {
		return // the file of an earlier start may still be of use
	}
	if data, err := json.Marshal(pods); err == nil && os.WriteFile(p.formerFile(), data, 0o644) != nil {
		_ = os.Remove(p.formerFile())
	}
}

// Reclaim releases every leaked address, and calls removePorts with a function that reports whether an address is free.
func (p Pool) Reclaim(removePorts func(free func(netip.Addr) bool) error) error {
	boot, err := BootID()
	if err != nil {
		return err
	}
	return p.withHolders(func(holders map[netip.Addr]Holder) error {
		leaked := func(h Holder) bool { return h.Leaked(boot) }
		p.keepFormer(holders, leaked)
		p.sweep(holders, leaked)
		return removePorts(func(ip netip.Addr) bool { _, taken := holders[ip]; return !taken })
	})
}

// BootID returns the ID of the current boot of the machine.
func BootID() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data)), err
}
