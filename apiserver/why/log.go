package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"monopod/apiserver/kit/spelling"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/why/facts"
)

// logCause is a cause that was found in the last lines of a program's log. sentence is empty if none was found.
type logCause struct {
	sentence, do string
	evidence     []string
}

var (
	forbidden = regexp.MustCompile(`User "system:serviceaccount:([^:"]+):([^"]+)" cannot (\S+) resource "([^"]+)" ` +
		`in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)
	unknownName = regexp.MustCompile(`(?i)(?:lookup ([\w.-]+?)\.?(?: on \S+)?: no such host|ENOTFOUND ([\w.-]+)|` +
		`could not resolve host:? ["']?([\w.-]+)|could not translate host name "([^"]+)")`)
	refusedLine = regexp.MustCompile(`(?i)connection refused|ECONNREFUSED`)
	localhost   = regexp.MustCompile(`(?i)(?:localhost|127\.0\.0\.1|\[::1\]|::1):(\d+)`)
	portOf      = regexp.MustCompile(`:(\d{1,5})\b`)
)

// logCause looks for a cause in the last lines of the container's log, the newest first.
func (c container) logCause(lines []string) logCause {
	for _, line := range slices.Backward(lines) {
		if m := forbidden.FindStringSubmatch(line); m != nil {
			return c.denied(m)
		}
		if m := unknownName.FindStringSubmatch(line); m != nil {
			return c.unknownHost(m[1] + m[2] + m[3] + m[4])
		}
		if refusedLine.MatchString(line) {
			return c.connectionRefused(line)
		}
	}
	return logCause{}
}

// denied explains a request that RBAC does not allow to the pod's service account.
func (c container) denied(m []string) logCause {
	namespace, account, verb, resource, group, in := m[1], m[2], m[3], m[4], m[5], m[6]
	t := logCause{sentence: fmt.Sprintf("RBAC does not allow the ServiceAccount %s to %s %s", account, verb, resource)}
	what := resource
	if group != "" {
		what += "." + group
	}
	kind, at := "clusterrole", ""
	if in != "" {
		kind, at = "role", " -n "+in
		t.sentence += " in namespace " + in
	}
	t.do = fmt.Sprintf("Allow it with a role and its binding: kubectl create %s %s --verb=%s --resource=%s%s, "+
		"and: kubectl create %sbinding %s --%s=%s --serviceaccount=%s:%s%s. "+
		"If the pod should use another account, correct serviceAccountName.",
		kind, account, verb, what, at, kind, account, kind, account, namespace, account, at)
	bound := func(name, inNamespace string, role rbacv1.RoleRef, subjects []rbacv1.Subject) {
		if slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Name == account && s.Namespace == namespace
		}) && (inNamespace == "" || inNamespace == in) {
			t.evidence = append(t.evidence,
				fmt.Sprintf("the binding %s gives it the %s %s, which does not allow this", name, role.Kind, role.Name))
		}
	}
	for _, b := range facts.Every[*rbacv1.RoleBinding](c.Facts) {
		bound(b.Name, b.Namespace, b.RoleRef, b.Subjects)
	}
	for _, b := range facts.Every[*rbacv1.ClusterRoleBinding](c.Facts) {
		bound(b.Name, "", b.RoleRef, b.Subjects)
	}
	return t
}

// unknownHost explains a name that DNS does not know.
func (c container) unknownHost(name string) logCause {
	services := facts.Every[*corev1.Service](c.Facts)
	short := strings.TrimSuffix(strings.TrimSuffix(name, ".cluster.local"), ".svc")
	service, namespace, two := strings.Cut(short, ".")
	ofCluster := !two || short != name ||
		slices.ContainsFunc(services, func(s *corev1.Service) bool { return s.Namespace == namespace })
	if !two {
		namespace = c.pod.Namespace
	}
	switch s := facts.Related[*corev1.Service](c.Facts, namespace, service); {
	case !ofCluster || strings.Contains(namespace, "."):
		return logCause{sentence: fmt.Sprintf("DNS does not know the name %s", name),
			do: "Correct the name in the configuration of the program, or check the DNS servers of the machine; " +
				"CoreDNS asks them for names outside the cluster."}
	case s != nil:
		a := traffic{c.about(s)}.service(s)
		if a.Do == "" {
			return logCause{sentence: fmt.Sprintf("the name of Service %s was not known then, and it is now", s.Name),
				do: "Wait until the container starts again.", evidence: a.Evidence}
		}
		return logCause{sentence: strings.TrimSuffix(a.Sentence, "."), do: a.Do, evidence: a.Evidence}
	case len(services) == 0: // the user may not read them
		return logCause{}
	}
	t := logCause{sentence: fmt.Sprintf("there is no Service %s in namespace %s", service, namespace),
		do: "Create the Service, or correct the name in the configuration of the program; " +
			"a Service of another namespace is NAME.NAMESPACE."}
	for _, s := range services {
		if s.Name == service || s.Namespace == namespace && spelling.Similar(s.Name, service) {
			t.evidence = append(t.evidence, fmt.Sprintf("there is the Service %s in namespace %s", s.Name, s.Namespace))
		}
	}
	return t
}

// connectionRefused explains a connection that was refused.
func (c container) connectionRefused(line string) logCause {
	for _, s := range facts.Every[*corev1.Service](c.Facts) {
		if !facts.Mentions(line, s) {
			continue
		}
		name := "Service " + s.Name
		if s.Namespace != c.pod.Namespace {
			name += " of namespace " + s.Namespace
		}
		if m := portOf.FindAllStringSubmatch(line, -1); m != nil && !slices.ContainsFunc(m, func(m []string) bool {
			return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == m[1] })
		}) {
			return logCause{sentence: fmt.Sprintf("%s has no port %s", name, m[len(m)-1][1]),
				do: "Correct the port in the configuration of the program, or add it to the Service."}
		}
		a := traffic{c.about(s)}.service(s)
		if a.Do == "" {
			return logCause{sentence: name + " refused the connection then, and has endpoints now",
				do: "Wait until the container starts again; " +
					"let the program try again when what it needs is not there yet.",
				evidence: append([]string{a.Sentence}, a.Evidence...)}
		}
		return logCause{sentence: words.Lower(strings.TrimSuffix(a.Sentence, ".")), do: a.Do, evidence: a.Evidence}
	}
	if m := localhost.FindStringSubmatch(line); m != nil {
		return logCause{sentence: fmt.Sprintf("nothing in the pod listens on port %s of localhost", m[1]),
			do: "localhost is the pod itself: give the program the name of a Service, or start the server in another " +
				"container of the pod. To read the whole log: kubectl logs " + c.pod.Name + " -c " + c.spec.Name + " --previous"}
	}
	return logCause{}
}
