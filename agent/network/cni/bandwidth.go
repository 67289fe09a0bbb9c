package cni

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net"

	"monopod/agent/network/retry"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Bandwidth is in the format of CNI's capability bandwidth: in bits per second, and bits. Zero: not limited. A
// container runtime takes the rates from the annotations kubernetes.io/ingress-bandwidth and egress-bandwidth of the
// pod.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"` // to the pod
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"` // from the pod
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

const (
	// minRate and maxRate are those of Kubernetes: 1k and 1P bits per second.
	minRate, maxRate = 1e3, 1e15
	// burstTime limits a burst, in bytes, to what the rate transfers in this part of a second. containerd requests 512 MB
	// for every rate, so that a short transfer would never be limited.
	burstTime = 10
	// minBurst is the size of the largest packet before segmentation.
	minBurst = 64 << 10
	// queueTime is how long a packet may wait, as a part of a second, before others are dropped: 25 ms, as in upstream's
	// plugin.
	queueTime = 40
)

// Check returns an error for rates that Kubernetes refuses.
func (b Bandwidth) Check() error {
	for name, rate := range map[string]uint64{"ingress": b.IngressRate, "egress": b.EgressRate} {
		if rate != 0 && (rate < minRate || rate > maxRate) {
			return fmt.Errorf("%s bandwidth of %d bits per second is not between 1k and 1P", name, rate)
		}
	}
	return nil
}

// Apply limits the bandwidth of the pod behind the link. Packets from the pod pass an ifb device, which removeIFB
// removes; its alias names the network.
func (b Bandwidth) Apply(link netlink.Link, alias string) error {
	if limited(b.IngressRate) {
		if err := netlink.QdiscAdd(bucket(link, b.IngressRate, b.IngressBurst)); err != nil {
			return fmt.Errorf("limit the ingress bandwidth: %w; the kernel needs sch_tbf", err)
		}
	}
	if !limited(b.EgressRate) {
		return nil
	}
	if err := b.applyEgress(link, alias); err != nil {
		err = fmt.Errorf("limit the egress bandwidth: %w; the kernel needs ifb, sch_tbf, sch_ingress, cls_u32 and act_mirred",
			err)
		return errors.Join(err, removeIFB(link.Attrs().Name))
	}
	return nil
}

// limited reports whether there is a rate that fits the kernel's 32 bits. No link of a pod reaches a higher one.
func limited(rate uint64) bool { return rate > 0 && rate/8 <= math.MaxUint32 }

func (b Bandwidth) applyEgress(link netlink.Link, alias string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.Flags = ifbName(link.Attrs().Name), link.Attrs().MTU, net.FlagUp
	if err := netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}); err != nil {
		return err
	}
	ifb, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		return err
	}
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
	redirect := netlink.NewMirredAction(ifb.Attrs().Index)
	if err := errors.Join(netlink.LinkSetAlias(ifb, alias), netlink.LinkSetUp(ifb),
		netlink.QdiscAdd(bucket(ifb, b.EgressRate, b.EgressBurst)), netlink.QdiscAdd(ingress)); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: link.Attrs().Index, Parent: ingress.Handle, Priority: 1,
			Protocol: unix.ETH_P_ALL},
		ClassId: netlink.MakeHandle(1, 1), Actions: []netlink.Action{redirect},
	})
}

// bucket is the token bucket of a rate in bits per second.
func bucket(link netlink.Link, rate, burst uint64) *netlink.Tbf {
	bytes := rate / 8
	size := max(bytes/burstTime, minBurst)
	size = min(size, cmp.Or(burst/8, size))
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0),
			Parent: netlink.HANDLE_ROOT},
		Rate: bytes, Limit: uint32(min(bytes/queueTime+size, math.MaxUint32)),
		Buffer: uint32(min(float64(size)/float64(bytes)*1e6*netlink.TickInUsec(), math.MaxUint32)),
	}
}

// ifbName returns the name of the ifb of a link.
func ifbName(link string) string {
	sum := sha256.Sum256([]byte(link))
	return "mpb" + hex.EncodeToString(sum[:6])
}

// removeIFB removes the ifb of a link, if there is one; the kernel removes the limits of the link with the link.
func removeIFB(link string) error {
	ifb, err := netlink.LinkByName(ifbName(link))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(ifb)
}

// reclaimIFBs removes the leaked ifbs with the alias: those whose links no longer exist.
func reclaimIFBs(alias string) error {
	links, err := retry.All(netlink.LinkList)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, l := range links {
		used[ifbName(l.Attrs().Name)] = true
	}
	var errs []error
	for _, l := range links {
		if l.Type() == "ifb" && l.Attrs().Alias == alias && !used[l.Attrs().Name] {
			errs = append(errs, netlink.LinkDel(l))
		}
	}
	return errors.Join(errs...)
}
