package env

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Services returns the variables with the addresses of Services, in the formats of upstream and of Docker links: those
// of the Service kubernetes in the namespace default and, if links is true, of all Services in the pod's namespace.
func Services(list []*corev1.Service, namespace string, links bool) []Var {
	byName := map[string]*corev1.Service{}
	for _, s := range list {
		api := s.Namespace == corev1.NamespaceDefault && s.Name == "kubernetes"
		_, local := byName[s.Name]
		switch {
		case s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0:
		case links && s.Namespace == namespace, api && !local:
			byName[s.Name] = s
		}
	}
	var out []Var
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, serviceVars(byName[name])...)
	}
	return out
}

// serviceVars returns the variables of one Service with an address and ports.
func serviceVars(s *corev1.Service) []Var {
	name, ip := variable(s.Name), s.Spec.ClusterIP
	out := []Var{
		{name + "_SERVICE_HOST", ip},
		{name + "_SERVICE_PORT", number(s.Spec.Ports[0].Port)},
	}
	for _, p := range s.Spec.Ports {
		if p.Name != "" {
			out = append(out, Var{name + "_SERVICE_PORT_" + variable(p.Name), number(p.Port)})
		}
	}
	for i, p := range s.Spec.Ports {
		protocol := string(corev1.ProtocolTCP)
		if p.Protocol != "" {
			protocol = string(p.Protocol)
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, number(p.Port))
		if i == 0 {
			out = append(out, Var{name + "_PORT", url})
		}
		prefix := name + "_PORT_" + number(p.Port) + "_" + strings.ToUpper(protocol)
		out = append(out, Var{prefix, url}, Var{prefix + "_PROTO", strings.ToLower(protocol)},
			Var{prefix + "_PORT", number(p.Port)}, Var{prefix + "_ADDR", ip})
	}
	return out
}

// variable converts the name of a Service or port to the name of a variable.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

func number(port int32) string { return strconv.Itoa(int(port)) }
