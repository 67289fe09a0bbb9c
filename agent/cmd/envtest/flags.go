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

// passedFlags are kube-apiserver's flags that `monopod serve` has too.
const passedFlags = " service-cluster-ip-range service-node-port-range" +
	" audit-policy-file audit-log-path audit-log-maxsize audit-log-maxbackup audit-log-maxage" +
	" max-requests-inflight max-mutating-requests-inflight request-timeout min-request-timeout profiling" +
	" client-ca-file disable-admission-plugins "

// redundantFlags are flags whose usual values describe the behavior of monopod: it stores the state itself, its
// authorizer is RBAC, and it issues tokens with its own key and issuer.
const redundantFlags = " etcd-servers etcd-prefix etcd-cafile etcd-certfile etcd-keyfile storage-backend" +
	" allow-privileged authorization-mode advertise-address" +
	" service-account-issuer service-account-key-file service-account-signing-key-file api-audiences" +
	" enable-admission-plugins insecure-port watch-cache v "

// parse splits a command line into flags; the value of a flag may be the next argument. A flag without value is "true".
func parse(args []string) ([]flag, error) {
	var out []flag
	for i := 0; i < len(args); i++ {
		if args[i] == "" { // envtest's template of a deprecated argument may be empty
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

// serveArgs are the flags of `monopod serve` for flags of kube-apiserver.
type serveArgs struct {
	flags   []string
	certDir string
	ignored []string // flags without effect, for a warning
}

// translate translates flags of kube-apiserver to flags of `monopod serve`.
func translate(args []string) (serveArgs, error) {
	given, err := parse(args)
	if err != nil {
		return serveArgs{}, err
	}
	s := serveArgs{flags: []string{"--runtime=none", "--controllers=", "--node-name=envtest", "--snapshot-interval=0"}}
	values := map[string]string{}
	for _, f := range given {
		switch f.name {
		case "bind-address", "secure-port", "cert-dir", "tls-cert-file", "tls-private-key-file":
			values[f.name] = f.value
			continue
		}
		switch word := " " + f.name + " "; {
		case strings.Contains(passedFlags, word):
			s.flags = append(s.flags, "--"+f.name+"="+f.value)
		case !strings.Contains(redundantFlags, word):
			s.ignored = append(s.ignored, f.name)
		}
	}
	s.certDir = values["cert-dir"]
	listen := net.JoinHostPort(cmp.Or(values["bind-address"], "0.0.0.0"), cmp.Or(values["secure-port"], "6443"))
	s.flags = append(s.flags, "--listen="+listen)
	s.flags = append(s.flags, certificate(values)...)
	return s, nil
}

// certificate returns the flags for the certificate: the named files, or as with kube-apiserver those in --cert-dir, if
// they exist.
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
