package registry

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/allocate"
)

// releases contains the functions that release the reservations of one write. A retried write has several.
type releases []func()

func (h *releases) run() {
	for _, release := range *h {
		release()
	}
}

// reserve allocates the addresses and ports of a Service. The reservations last until their release; after that the
// addresses and ports are in use only if next was stored.
func (r *Registry) reserve(ctx context.Context, next, cur Object, sub string, reservations *releases) error {
	service, ok := next.(*corev1.Service)
	if !ok || sub != "" {
		return nil
	}
	old, _ := cur.(*corev1.Service)
	release, err := r.services.Reserve(ctx, service, old)
	*reservations = append(*reservations, release)
	return err
}

func newServices(r *Registry, cfg allocate.Config) *allocate.Services {
	stored := allocate.Stored{Services: func(ctx context.Context) ([]*corev1.Service, error) {
		return client.List[*corev1.Service](ctx, r, client.Selector{})
	}}
	if r.Find(client.ServiceCIDRs) != nil {
		stored.Ranges = func(ctx context.Context) ([]netip.Prefix, error) { return allocate.ReadyRanges(ctx, r) }
	}
	if r.Find(client.IPAddresses) != nil {
		stored.UserAddresses = func(ctx context.Context) ([]netip.Addr, error) { return allocate.UserAddresses(ctx, r) }
	}
	return allocate.New(cfg, stored)
}
