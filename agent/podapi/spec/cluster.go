package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// NoDNS is the value of --cluster-dns that selects the node's resolver.
const NoDNS = "none"

// Flags adds kubelet's flags.
func (c *Cluster) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.DNS, "cluster-dns", nil,
		"Comma-separated list of DNS server IP addresses for pods with the DNS policy ClusterFirst. Empty: the built-in DNS "+
			"server, at the tenth address of --service-cluster-ip-range; with an existing containerd, the resolver of the "+
			"node. none: the resolver of the node.")
	f.StringVar(&c.Domain, "cluster-domain", "",
		"Domain of the cluster: pods search it for names, and their hostnames are completed with it. Empty: cluster.local "+
			"with the built-in DNS server.")
}

// Check validates the flags.
func (c *Cluster) Check() error {
	var errs []error
	for _, address := range c.DNS {
		if address == NoDNS && len(c.DNS) == 1 {
			continue
		}
		if _, err := netip.ParseAddr(address); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-dns: %q is not an IP address", address))
		}
	}
	if c.Domain != "" {
		if problems := validation.IsDNS1123Subdomain(c.Domain); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--cluster-domain: %q: %s", c.Domain, strings.Join(problems, "; ")))
		}
	}
	return errors.Join(errs...)
}
