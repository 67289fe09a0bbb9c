package entry

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// tlsFiles contain the certificates in the files that flags name.
type tlsFiles struct {
	serving  *tls.Certificate // of --tls-cert-file; nil: none
	pem      []byte           // the content of --tls-cert-file
	clientCA []byte           // the content of --client-ca-file
}

func (s *Serving) read() (f tlsFiles, err error) {
	if s.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(s.CertFile, s.KeyFile)
		if err != nil {
			return f, fmt.Errorf("--tls-cert-file: %w", err)
		}
		f.serving = &cert
		if f.pem, err = os.ReadFile(s.CertFile); err != nil {
			return f, fmt.Errorf("--tls-cert-file: %w", err)
		}
	}
	if s.ClientCAFile != "" {
		if f.clientCA, err = os.ReadFile(s.ClientCAFile); err != nil {
			return f, fmt.Errorf("--client-ca-file: %w", err)
		}
		if !x509.NewCertPool().AppendCertsFromPEM(f.clientCA) {
			return f, fmt.Errorf("--client-ca-file: %s contains no certificates in PEM format", s.ClientCAFile)
		}
	}
	return f, nil
}

// covers reports whether the certificate in --tls-cert-file is valid for the name or address that a client connects to.
// Clients do not send an address as server name; it is the local address of their connection.
func (f *tlsFiles) covers(hello *tls.ClientHelloInfo) bool {
	if f.serving == nil || hello == nil {
		return false
	}
	name := hello.ServerName
	if name == "" && hello.Conn != nil {
		if at, ok := hello.Conn.LocalAddr().(*net.TCPAddr); ok {
			name = at.IP.String()
		}
	}
	return name != "" && f.serving.Leaf.VerifyHostname(name) == nil
}

// clientCAs returns authority with the authorities in --client-ca-file.
func (f *tlsFiles) clientCAs(authority *x509.CertPool) *x509.CertPool {
	if len(f.clientCA) == 0 {
		return authority
	}
	pool := authority.Clone()
	pool.AppendCertsFromPEM(f.clientCA)
	return pool
}
