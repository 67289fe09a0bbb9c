package service

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/registry/kind"
)

// WithLoopbackPods returns the resources with Endpoints and EndpointSlices that accept addresses of the pod range even
// if it is in the loopback range, which they otherwise reject.
func WithLoopbackPods(resources []kind.Resource, pods netip.Prefix) []kind.Resource {
	out := slices.Clone(resources)
	for i := range out {
		if out[i].Kind != "Endpoints" && out[i].Kind != "EndpointSlice" {
			continue
		}
		validate := out[i].Validate
		out[i].Validate = func(next, cur kind.Object, subresource string) field.ErrorList {
			return slices.DeleteFunc(validate(next, cur, subresource), func(err *field.Error) bool {
				text, _ := err.BadValue.(string)
				ip, parseErr := netip.ParseAddr(text)
				return parseErr == nil && ip.IsLoopback() && pods.Contains(ip)
			})
		}
	}
	return out
}
