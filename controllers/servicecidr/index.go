package servicecidr

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
)

// index contains the objects as seen by the watches. It is safe for concurrent use.
type index struct {
	mu        sync.Mutex // guards the fields below
	services  map[follow.Key][]netip.Addr
	addresses map[netip.Addr]address
	byService map[follow.Key][]netip.Addr // IPAddresses by their Service
	cidrs     map[string]cidr
}

// address describes an IPAddress.
type address struct {
	name    string
	uid     types.UID
	parent  follow.Key
	managed bool // this controller manages it, not a user
}

type cidr struct {
	ranges   []netip.Prefix
	deleting bool
}

func newIndex() *index {
	return &index{services: map[follow.Key][]netip.Addr{}, addresses: map[netip.Addr]address{},
		byService: map[follow.Key][]netip.Addr{}, cidrs: map[string]cidr{}}
}

// onCIDR wakes the ServiceCIDR, and those that are being deleted: another one may now contain their addresses.
func (x *index) onCIDR(old, next client.Object) []item {
	x.mu.Lock()
	defer x.mu.Unlock()
	if next == nil {
		delete(x.cidrs, old.GetName())
		return append(x.deleted(), item{cidr: old.GetName()})
	}
	c := cidr{deleting: next.GetDeletionTimestamp() != nil}
	for _, text := range next.(*networkingv1.ServiceCIDR).Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			c.ranges = append(c.ranges, p)
		}
	}
	x.cidrs[next.GetName()] = c
	return append(x.deleted(), item{cidr: next.GetName()})
}

func (x *index) deleted() []item {
	var out []item
	for name, c := range x.cidrs {
		if c.deleting {
			out = append(out, item{cidr: name})
		}
	}
	return out
}

// onService wakes a Service whose addresses have changed.
func (x *index) onService(old, next client.Object) []item {
	x.mu.Lock()
	defer x.mu.Unlock()
	var key follow.Key
	var has []netip.Addr
	if next == nil {
		key = follow.KeyOf(old)
	} else {
		key = follow.KeyOf(next)
		for _, text := range next.(*corev1.Service).Spec.ClusterIPs {
			if ip, err := netip.ParseAddr(text); err == nil {
				has = append(has, ip.Unmap())
			}
		}
	}
	had := x.services[key]
	if len(has) > 0 {
		x.services[key] = has
	} else {
		delete(x.services, key)
	}
	if slices.Equal(had, has) {
		return nil
	}
	return append(x.deleted(), item{service: key})
}

// onAddress wakes the Services that an IPAddress refers to or should refer to, if they differ.
func (x *index) onAddress(old, next client.Object) []item {
	x.mu.Lock()
	defer x.mu.Unlock()
	obj := next
	if next == nil {
		obj = old
	}
	ip, err := netip.ParseAddr(obj.GetName())
	if err != nil {
		return nil
	}
	was := x.addresses[ip]
	if shown := slices.DeleteFunc(x.byService[was.parent], func(a netip.Addr) bool { return a == ip }); len(shown) > 0 {
		x.byService[was.parent] = shown
	} else {
		delete(x.byService, was.parent)
	}
	delete(x.addresses, ip)
	var is address
	if next != nil {
		is = addressOf(next.(*networkingv1.IPAddress))
		x.addresses[ip] = is
		if is.managed {
			x.byService[is.parent] = append(x.byService[is.parent], ip)
		}
	}
	if is.managed && slices.Contains(x.services[is.parent], ip) {
		return nil
	}
	var wake []item
	if is.managed {
		wake = append(wake, item{service: is.parent})
	}
	for key, has := range x.services { // rare: another client changed the IPAddress, or its Service was deleted
		if slices.Contains(has, ip) {
			wake = append(wake, item{service: key})
		}
	}
	return wake
}

func addressOf(ip *networkingv1.IPAddress) address {
	a := address{name: ip.Name, uid: ip.UID, managed: ip.Labels[networkingv1.LabelManagedBy] == manager}
	if ref := ip.Spec.ParentRef; ref != nil && ref.Resource == "services" && ref.Group == "" {
		a.parent = follow.Key{Namespace: ref.Namespace, Name: ref.Name}
	}
	return a
}

// difference returns the addresses of a Service without an IPAddress, and the IPAddresses to delete: those of addresses
// that the Service does not have, and those of its addresses that refer to another Service.
func (x *index) difference(key follow.Key) (lack []netip.Addr, surplus []address) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, ip := range x.services[key] {
		switch is, ok := x.addresses[ip]; {
		case !ok:
			lack = append(lack, ip)
		case is.managed && is.parent != key && !slices.Contains(x.services[is.parent], ip):
			surplus = append(surplus, is)
			lack = append(lack, ip)
		}
	}
	for _, ip := range x.byService[key] {
		if !slices.Contains(x.services[key], ip) {
			surplus = append(surplus, x.addresses[ip])
		}
	}
	return lack, surplus
}

// needed reports whether a Service has an address that no other ServiceCIDR contains.
func (x *index) needed(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	contains := func(c cidr, ip netip.Addr) bool {
		return slices.ContainsFunc(c.ranges, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	for ips := range maps.Values(x.services) {
		for _, ip := range ips {
			if !contains(x.cidrs[name], ip) {
				continue
			}
			elsewhere := false
			for other, c := range x.cidrs {
				elsewhere = elsewhere || other != name && contains(c, ip)
			}
			if !elsewhere {
				return true
			}
		}
	}
	return false
}
