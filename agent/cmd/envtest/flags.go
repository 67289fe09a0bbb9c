package envtest

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// flag is one of kube-apiserver's flags with its value.
type flag struct{ name, value string }

// passed are kube-apiserver's flags that `monopod serve` has too.
const passed = " service-cluster-ip-range service-node-port-range audit-policy-file audit-log-path audit-log-maxsize audit-log-maxbackup audit-log-maxage" +
	" max-requests-inflight max-mutating-requests-inflight request-timeout min-request-timeout profiling" +
	" client-ca-file disable-admission-plugins "

// settled are the flags whose usual values state what monopod does anyway: it keeps the state itself, its authorizer is
// RBAC, and it issues tokens with its own key and issuer.
const settled = " etcd-servers etcd-prefix etcd-cafile etcd-certfile etcd-keyfile storage-backend allow-privileged authorization-mode advertise-address" +
	" service-account-issuer service-account-key-file service-account-signing-key-file api-audiences enable-admission-plugins" +
	" insecure-port watch-cache v "

// parse splits a command line into flags; the value of a flag may be the next argument. A flag without value is "true".
func parse(args []string) ([]flag, error) {
	var out []flag
	for i := 0; i < len(args); i++ {
		if args[i] == "" { // the template of a deprecated argument that does not apply
			continue
		}
		name, value, given := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") {
			return nil, fmt.Errorf("unexpected argument %q", args[i])
		}
		if !given {
			value = "true"
			if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++
				value = args[i]
			}
		}
		out = append(out, flag{strings.TrimLeft(name, "-"), value})
	}
	return out, nil
}

// serving is how `monopod serve` is started for kube-apiserver's flags.
type serving struct {
	flags   []string
	certDir string
	ignored []string // flags without effect, for a warning
}

// translate returns how monopod serves what kube-apiserver's flags ask for.
func translate(args []string) (serving, error) {
	given, err := parse(args)
	if err != nil {
		return serving{}, err
	}
	s := serving{flags: []string{"--runtime=none", "--controllers=", "--node-name=envtest", "--snapshot-interval=0"}}
	values := map[string]string{}
	for _, f := range given {
		switch f.name {
		case "bind-address", "secure-port", "cert-dir", "tls-cert-file", "tls-private-key-file":
			values[f.name] = f.value
			continue
		}
		switch word := " " + f.name + " "; {
		case strings.Contains(passed, word):
			s.flags = append(s.flags, "--"+f.name+"="+f.value)
		case !strings.Contains(settled, word):
			s.ignored = append(s.ignored, f.name)
		}
	}
	s.certDir = values["cert-dir"]
	listen := net.JoinHostPort(cmp.Or(values["bind-address"], "0.0.0.0"), cmp.Or(values["secure-port"], "6443"))
	s.flags = append(s.flags, "--listen="+listen)
	s.flags = append(s.flags, certificate(values)...)
	return s, nil
}

// certificate returns the flags for the certificate of these values: the named files, or as for kube-apiserver those in
// its --cert-dir, if they exist.
func certificate(values map[string]string) []string {
	cert, key := values["tls-cert-file"], values["tls-private-key-file"]
	if cert == "" && values["cert-dir"] != "" {
		cert, key = filepath.Join(values["cert-dir"], "apiserver.crt"), filepath.Join(values["cert-dir"], "apiserver.key")
		if _, err := os.Stat(cert); err != nil {
			return nil
		}
	}
	if cert == "" {
		return nil
	}
	return []string{"--tls-cert-file=" + cert, "--tls-private-key-file=" + key}
}
