package spec

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Flags are kubelet's.
func (c *Cluster) Flags(f *pflag.FlagSet) {
	f.StringSliceVar(&c.DNS, "cluster-dns", nil, "addresses of the cluster's DNS server, which pods with the dnsPolicy ClusterFirst ask; none: they ask whom the node asks")
	f.StringVar(&c.Domain, "cluster-domain", "", "domain of the cluster, as cluster.local: pods look for names in it and have full names of their own")
}

// Check finds what is no address and no domain.
func (c *Cluster) Check() error {
	var errs []error
	for _, address := range c.DNS {
		if _, err := netip.ParseAddr(address); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-dns: %q is no IP address", address))
		}
	}
	if c.Domain != "" {
		if problems := validation.IsDNS1123Subdomain(c.Domain); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--cluster-domain: %q: %s", c.Domain, strings.Join(problems, "; ")))
		}
	}
	return errors.Join(errs...)
}
