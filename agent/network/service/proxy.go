package service

import (
	"errors"
	"net/netip"
	"os"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config of a Proxy. Table is required.
type Config struct {
	Table    string // name of the nftables tables
	Node     Node
	Bridge   string         // link of the pods; empty: not known
	Bridges  string         // prefix of the names of such links of all instances on the machine; empty: no others
	Pods     []netip.Prefix // addresses of the node's pods; empty: not known
	Families []corev1.IPFamily
	Health   *HealthChecks // nil: health checks are not answered
	Log      *zap.Logger
}

// Proxy holds the desired tables of Services and writes them to the kernel. Its methods are not safe for concurrent
// use.
type Proxy struct {
	cfg    Config
	tables []*table
	// conflicting are the Services that lack a frontend because another Service has it.
	conflicting    map[types.NamespacedName]struct{}
	localnetRouted bool // route_localnet of Bridge was set, or failed
	bound          bool // the link of the pods has the addresses of load balancers
}

// New returns a Proxy that does not know any Services yet.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, conflicting: map[types.NamespacedName]struct{}{}}
	for _, family := range cfg.Families {
		p.tables = append(p.tables, newTable(newLayout(cfg, family)))
	}
	return p
}

// SetZone sets the zone of the node. All Services with endpoints must be set again after it.
func (p *Proxy) SetZone(zone string) { p.cfg.Node.Zone = zone }

// Set sets the state of a Service; nil: it no longer exists. If this Service has released an address, Set returns the
// Services that the caller must set again, because they may need it. Sync writes the difference.
func (p *Proxy) Set(key types.NamespacedName, svc *corev1.Service,
	eps []*discoveryv1.EndpointSlice) (again []types.NamespacedName) {
	delete(p.conflicting, key)
	check, local := checkPort(svc), 0
	for _, t := range p.tables {
		routes := Of(svc, eps, t.IPFamily, p.cfg.Node)
		if check != 0 {
			local += localReady(svc, eps, t.IPFamily, p.cfg.Node.Name)
		}
		taken, freed := t.set(key, routes)
		for _, front := range taken {
			p.conflicting[key] = struct{}{}
			p.cfg.Log.Warn("an address of a Service is not translated, because another Service has it",
				zap.Stringer("service", key), zap.Stringer("owner", t.owner[front].key),
				zap.Stringer("address", front.Addr), zap.Uint16("port", front.Port))
		}
		if freed {
			for other := range p.conflicting {
				if other != key {
					again = append(again, other)
				}
			}
		}
	}
	if p.cfg.Health != nil {
		p.cfg.Health.Set(key, check, local)
	}
	return again
}

// Sync brings the kernel to the desired state.
func (p *Proxy) Sync() error {
	var errs []error
	for _, t := range p.tables {
		if err := t.sync(); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := errors.Join(t.forgetClients(), t.forgetFlows()); err != nil {
			p.cfg.Log.Warn("failed to remove the conntrack flows and the session affinity of removed endpoints", zap.Error(err))
		}
	}
	// Let connections to 127.0.0.1 at a NodePort leave through the link of the pods. The table closes the other direction.
	if len(errs) == 0 && !p.localnetRouted && p.cfg.Bridge != "" {
		err := os.WriteFile("/proc/sys/net/ipv4/conf/"+p.cfg.Bridge+"/route_localnet", []byte("1"), 0o644)
		if err != nil {
			p.cfg.Log.Warn("failed to set route_localnet: NodePorts do not answer at 127.0.0.1", zap.Error(err))
		}
		p.localnetRouted = true
	}
	return errors.Join(append(errs, p.bind())...)
}

// Close closes the connections to the kernel, which keeps the tables.
func (p *Proxy) Close() {
	for _, t := range p.tables {
		t.Close()
		t.closeFlows()
	}
}

// bind adds the addresses that only load balancers have to the link of the pods.
func (p *Proxy) bind() error {
	var want []netip.Addr
	for _, t := range p.tables {
		p.bound = p.bound && !t.closedChanged
		t.closedChanged = false
		for h := range t.hosts {
			if h.closed {
				want = append(want, h.addr())
			}
		}
	}
	if p.bound || len(p.cfg.Node.Pool) == 0 || p.cfg.Bridge == "" {
		return nil
	}
	err := bind(p.cfg.Bridge, p.cfg.Node.Pool, want)
	p.bound = err == nil
	return err
}

// Verify checks that the kernel still has the tables. The next Sync writes those that another program removed.
func (p *Proxy) Verify() error {
	var errs []error
	for _, t := range p.tables {
		errs = append(errs, t.Verify())
	}
	return errors.Join(errs...)
}
