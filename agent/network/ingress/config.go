package ingress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"monopod/agent/network/ingress/proxy"
	"monopod/agent/network/ingress/route"
	"monopod/apiserver/kit/follow"
)

// Config of an ingress controller. Flags sets all fields but Node and Dial.
type Config struct {
	HTTP               string   // host:port; auto; empty or off: no HTTP
	HTTPS              string   // host:port; auto; empty or off: no HTTPS
	Classes            []string // nginx, traefik; or auto
	StatusAddresses    []string // in the status of Ingresses; empty: those of the node
	DefaultCertificate string   // namespace/name of a Secret; empty: a certificate that no client trusts
	MaxBody            string   // of a request, a quantity of bytes; 0: no limit
	TrustedProxies     []string // addresses and CIDRs of clients whose X-Forwarded headers are trusted
	AccessLog          bool

	Node      string          `json:"-"` // name of the node; required
	automatic map[string]bool // schemes whose port may be taken by others; set by Complete
	// Dial connects to a pod; nil: over the machine's network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error) `json:"-"`
}

// Flags adds the flags.
func (c *Config) Flags(f *pflag.FlagSet) {
	f.StringVar(&c.HTTP, "ingress", automatic,
		"HTTP address of the ingress controller, for example :8080. auto: :80 while no other program or pod has it, for\n"+
			"monopod serve as root with containerd, unless --listen has port 0; otherwise off. off or empty, and\n"+
			"--ingress-https too: no ingress controller.")
	f.StringVar(&c.HTTPS, "ingress-https", automatic,
		"HTTPS address of the ingress controller, for example :8443. auto: as --ingress, with :443. off or empty: no HTTPS.")
	f.StringSliceVar(&c.Classes, "ingress-classes", []string{autoClasses},
		"IngressClasses besides monopod that the ingress controller creates and serves: nginx, traefik.\n"+
			"auto: it serves Ingresses of both while no IngressClass has that name, which installing their controllers\n"+
			"creates. Empty: none.")
	f.StringSliceVar(&c.StatusAddresses, "ingress-status-address", nil,
		"IP addresses or host names in the status of Ingresses (default the node's addresses).")
	f.StringVar(&c.DefaultCertificate, "ingress-default-certificate", "",
		"Secret (NAMESPACE/NAME) of the certificate for hosts that no Ingress has one for. Empty: a self-signed certificate.")
	f.StringVar(&c.MaxBody, "ingress-max-body-size", "1Gi",
		"Maximum size of a request's body, unless an annotation of the Ingress sets another one. 0: no limit.")
	f.StringSliceVar(&c.TrustedProxies, "ingress-trusted-proxies", nil,
		"Addresses and CIDRs of proxies in front of the ingress controller whose X-Forwarded headers are kept.")
	f.BoolVar(&c.AccessLog, "ingress-access-log", false, "Log every request of the ingress controller.")
}

// autoClasses stands for foreignClasses without IngressClasses of those names.
const autoClasses = "auto"

// foreignClasses are the classes that public manifests name.
var foreignClasses = []string{"nginx", "traefik"}

// created returns the names of the IngressClasses that the controller creates.
func (c *Config) created() []string {
	if slices.Contains(c.Classes, autoClasses) {
		return []string{ClassName}
	}
	return append([]string{ClassName}, c.Classes...)
}

// served returns the names of classes that the controller serves while no IngressClass has the name.
func (c *Config) served() []string {
	if slices.Contains(c.Classes, autoClasses) {
		return append([]string{ClassName}, foreignClasses...)
	}
	return c.created()
}

const (
	automatic = "auto" // value of --ingress and --ingress-https
	off       = "off"
)

// Complete replaces auto by the usual port if usual is true, and otherwise by none.
func (c *Config) Complete(usual bool) {
	for _, one := range []struct {
		address      *string
		scheme, port string
	}{{&c.HTTP, "http", ":80"}, {&c.HTTPS, "https", ":443"}} {
		switch {
		case *one.address == automatic && usual:
			if c.automatic == nil {
				c.automatic = map[string]bool{}
			}
			*one.address, c.automatic[one.scheme] = one.port, true
		case *one.address == automatic || *one.address == off:
			*one.address = ""
		}
	}
}

// On reports whether there is an ingress controller.
func (c *Config) On() bool { return c.HTTP != "" || c.HTTPS != "" }

// Check returns an error for invalid values.
func (c *Config) Check() error {
	var errs []error
	for flag, address := range map[string]string{"--ingress": c.HTTP, "--ingress-https": c.HTTPS} {
		if address == "" {
			continue
		}
		if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", flag, err))
		}
	}
	for _, a := range c.StatusAddresses {
		if _, err := netip.ParseAddr(a); err != nil && len(validation.IsDNS1123Subdomain(a)) > 0 {
			errs = append(errs, fmt.Errorf("--ingress-status-address: %q is neither an IP address nor a host name", a))
		}
	}
	for _, name := range c.Classes {
		if name != autoClasses && !slices.Contains(foreignClasses, name) || name == autoClasses && len(c.Classes) > 1 {
			errs = append(errs, fmt.Errorf("--ingress-classes must be auto, or nginx and traefik, got %q",
				strings.Join(c.Classes, ",")))
			break
		}
	}
	_, err := c.defaultCertificate()
	_, err2 := c.maxBody()
	_, err3 := c.trusted()
	return errors.Join(append(errs, err, err2, err3)...)
}

// defaultCertificate returns the key of the Secret; the zero value: none.
func (c *Config) defaultCertificate() (follow.Key, error) {
	if c.DefaultCertificate == "" {
		return follow.Key{}, nil
	}
	namespace, name, ok := strings.Cut(c.DefaultCertificate, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return follow.Key{}, fmt.Errorf("--ingress-default-certificate must be NAMESPACE/NAME, got %q", c.DefaultCertificate)
	}
	return follow.Key{Namespace: namespace, Name: name}, nil
}

// maxBody returns the maximum size of a body in bytes; 0: no limit.
func (c *Config) maxBody() (int64, error) {
	if c.MaxBody == "" {
		return 0, nil
	}
	q, err := resource.ParseQuantity(c.MaxBody)
	if err == nil && q.Sign() < 0 {
		err = errors.New("it must not be negative")
	}
	if err != nil {
		return 0, fmt.Errorf("--ingress-max-body-size: %q: %w", c.MaxBody, err)
	}
	return q.Value(), nil
}

// Prepare sets what the settings say of a handler.
func (c *Config) Prepare(h *proxy.Handler, log *zap.Logger) {
	h.Trusted, _ = c.trusted()
	if c.AccessLog {
		h.Access = log
	}
}

// Defaults returns the options of requests.
func (c *Config) Defaults() route.Options {
	o := route.Options{Wait: proxy.WaitTime}
	o.MaxBody, _ = c.maxBody()
	return o
}

func (c *Config) trusted() ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, text := range c.TrustedProxies {
		prefix, err := route.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--ingress-trusted-proxies: %w", err)
		}
		list = append(list, prefix)
	}
	return list, nil
}
