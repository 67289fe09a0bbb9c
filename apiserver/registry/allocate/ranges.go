package allocate

import (
	"context"
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"monopod/apiserver/kit/client"
)

// ReadyRanges returns the ranges of all ready ServiceCIDRs, sorted by name.
func ReadyRanges(ctx context.Context, c client.Client) ([]netip.Prefix, error) {
	all, err := client.List[*networkingv1.ServiceCIDR](ctx, c, client.Selector{})
	var out []netip.Prefix
	for _, cidr := range all {
		if cidr.DeletionTimestamp != nil ||
			!meta.IsStatusConditionTrue(cidr.Status.Conditions, networkingv1.ServiceCIDRConditionReady) {
			continue
		}
		for _, text := range cidr.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p)
			}
		}
	}
	return out, err
}

// userAddressSelector selects the IPAddresses that do not belong to Services.
var userAddressSelector = labels.Set{}.AsSelector().Add(
	*must(labels.NewRequirement(networkingv1.LabelManagedBy, selection.NotEquals, []string{Manager})))

func must(r *labels.Requirement, err error) *labels.Requirement {
	if err != nil {
		panic(err)
	}
	return r
}

// UserAddresses returns the addresses that users reserve with IPAddresses.
func UserAddresses(ctx context.Context, c client.Client) ([]netip.Addr, error) {
	all, err := client.List[*networkingv1.IPAddress](ctx, c, client.Selector{Labels: userAddressSelector})
	var out []netip.Addr
	for _, o := range all {
		if ip, err := netip.ParseAddr(o.Name); err == nil {
			out = append(out, ip)
		}
	}
	return out, err
}
