package spec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kubelet's comments in /etc/hosts. Tools search for them.
const (
	hostsHeader       = "# Kubernetes-managed hosts file.\n"
	hostNetworkHeader = "# Kubernetes-managed hosts file (host network).\n"
	aliasesHeader     = "\n# Entries added by HostAliases.\n"
)

// Hosts returns the /etc/hosts of a pod with the addresses ips, in kubelet's layout. node is the content of the node's
// file, which a pod on the host network gets.
func Hosts(pod *corev1.Pod, ips []string, clusterDomain, node string) string {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		b.WriteString(hostNetworkHeader + node)
	} else {
		b.WriteString(hostsHeader)
		b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
		b.WriteString("fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		name := shortName(pod)
		if full := fqdn(pod, clusterDomain); full != name {
			name = full + "\t" + name
		}
		for _, ip := range ips {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString(aliasesHeader)
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return b.String()
}

// ParseResolv parses a resolv.conf.
func ParseResolv(text string) *cri.DNSConfig {
	out := &cri.DNSConfig{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			out.Servers = append(out.Servers, fields[1])
		case "search":
			out.Searches = fields[1:]
		case "options":
			out.Options = append(out.Options, fields[1:]...)
		}
	}
	return out
}

// Cluster contains the DNS servers and the domain of the cluster.
type Cluster struct {
	DNS    []string
	Domain string
}

// DNS returns a pod's resolver config by its dnsPolicy and dnsConfig; host is the node's resolver config.
func DNS(pod *corev1.Pod, host *cri.DNSConfig, cluster Cluster) *cri.DNSConfig {
	out := base(pod, host, cluster)
	if c := pod.Spec.DNSConfig; c != nil {
		out.Servers = append(out.Servers, c.Nameservers...)
		out.Searches = append(out.Searches, c.Searches...)
		for _, o := range c.Options { // they replace options of the same name
			out.Options = slices.DeleteFunc(out.Options, func(s string) bool {
				name, _, _ := strings.Cut(s, ":")
				return name == o.Name
			})
			if o.Value != nil && *o.Value != "" {
				out.Options = append(out.Options, o.Name+":"+*o.Value)
			} else {
				out.Options = append(out.Options, o.Name)
			}
		}
	}
	out.Servers, out.Searches = unique(out.Servers), unique(out.Searches)
	return out
}

func base(pod *corev1.Pod, host *cri.DNSConfig, cluster Cluster) *cri.DNSConfig {
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork || len(cluster.DNS) == 0 && policy != corev1.DNSNone {
		policy = corev1.DNSDefault
	}
	switch policy {
	case corev1.DNSNone:
		return &cri.DNSConfig{}
	case corev1.DNSDefault:
		return &cri.DNSConfig{
			Servers: slices.Clone(host.Servers), Searches: slices.Clone(host.Searches), Options: slices.Clone(host.Options),
		}
	}
	out := &cri.DNSConfig{Servers: slices.Clone(cluster.DNS), Options: []string{"ndots:5"}}
	if d := cluster.Domain; d != "" {
		out.Searches = []string{pod.Namespace + ".svc." + d, "svc." + d, d}
	}
	out.Searches = append(out.Searches, host.Searches...)
	return out
}

func unique(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
