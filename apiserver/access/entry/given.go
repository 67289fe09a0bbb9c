package entry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// given are the certificates that the flags name: one of the server, and authorities of clients.
type given struct {
	serving     *tls.Certificate // nil: none
	pem         []byte           // serving's certificates
	authorities []byte           // PEM
}

// read reads the files.
func (s *Serving) read() (g given, err error) {
	if s.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return g, fmt.Errorf("--tls-cert-file: %w", err)
		}
		g.serving = &cert
		if g.pem, err = os.ReadFile(s.CertFile); err != nil {
			return g, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	if s.ClientCAFile != "" {
		if g.authorities, err = os.ReadFile(s.ClientCAFile); err != nil {
			return g, fmt.Errorf("--client-ca-file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(g.authorities) {
			return g, fmt.Errorf("--client-ca-file: %s contains no certificates in PEM format", s.ClientCAFile)
		}
	}
	return g, nil
}

// covers reports whether the server's given certificate is valid for the name or address that a client connects to.
// Clients send no address as name of the server; it is the local one of their connection.
func (g *given) covers(hello *tls.ClientHelloInfo) bool {
	if g.serving == nil || hello == nil {
		return false
	}
	name := hello.ServerName
	if name == "" && hello.Conn != nil {
		if at, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			name = at.IP.String()
		}
	}
	return name != "" && g.serving.Leaf.VerifyHostname(name) == nil
}

// clients returns authority with the given authorities.
func (g *given) clients(authority *x509.CertPool) *x509.CertPool {
	if len(g.authorities) == 0 {
		return authority
	}
	pool := authority.Clone()
	pool.AppendCertsFromPEM(g.authorities)
	return pool
}
