package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Certificates are valid from the earliest possible time, so that a device whose clock went back accepts them, except
// those of clients that renew them after a part of the time between NotBefore and NotAfter. The authority never expires.
// Certificates that it signs are valid for leafLife and renewed in its last fifth. A clock before clockSet is not set: a
// certificate that is signed then is valid until unsetUntil.
const leafLife = 10 * 365 * 24 * time.Hour

func notBefore() time.Time  { return time.Unix(0, 0).UTC() }
func notAfter() time.Time   { return time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC) }
func clockSet() time.Time   { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }
func unsetUntil() time.Time { return time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC) }

// Pair is a certificate and its key, PEM encoded.
type Pair struct{ Cert, Key []byte }

// Authority signs the certificates of one installation.
type Authority struct {
	PEM  []byte // the certificates of the authority and, until it expires, of the previous one
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// OpenAuthority reads ca.crt and ca.key in dir, or creates them. The authority in ca.old.crt remains valid (see
// NewAuthority).
func OpenAuthority(dir string) (*Authority, error) {
	pair, err := Keep(filepath.Join(dir, "ca"), func() (Pair, error) { return newAuthority("monopod-ca") })
	if err != nil {
		return nil, err
	}
	old, err := os.ReadFile(filepath.Join(dir, oldAuthority))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return load(filepath.Join(dir, "ca"), pair, old)
}

// load returns the authority of a pair, which was read from base. Certificates that the authority in old signed are
// valid, too.
func load(base string, pair Pair, old []byte) (*Authority, error) {
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("%s.crt: %w", base, err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s.key must be an ECDSA key, got a %T", base, loaded.PrivateKey)
	}
	a := &Authority{PEM: slices.Concat(pair.Cert, old), cert: loaded.Leaf, key: key, pool: x509.NewCertPool()}
	a.pool.AppendCertsFromPEM(a.PEM)
	return a, nil
}

// oldAuthority is the file with the previous authority's certificate.
const oldAuthority = "ca.old.crt"

// NewAuthority makes the next OpenAuthority create a new authority. Certificates of the previous authority remain valid
// until it expires; those of earlier ones become invalid.
func NewAuthority(dir string) error {
	old, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return err
	}
	if err := WriteSecret(filepath.Join(dir, oldAuthority), old); err != nil {
		return err
	}
	return errors.Join(os.Remove(filepath.Join(dir, "ca.crt")), os.Remove(filepath.Join(dir, "admin.crt")))
}

func newAuthority(name string) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: notBefore(), NotAfter: notAfter(),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:     true, BasicConstraintsValid: true,
	}
	return sign(t, t, key, key)
}

// Serving signs a server certificate for the hosts, which are names or addresses. The authority's own certificate follows
// it, so that a client that knows only its CAHash can verify the server.
func (a *Authority) Serving(now time.Time, hosts []string) (Pair, error) {
	t := leaf(now, pkix.Name{CommonName: "monopod"}, x509.ExtKeyUsageServerAuth)
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	p, err := a.issue(t)
	p.Cert = append(p.Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})...)
	return p, err
}

// Client signs a client certificate for u.
func (a *Authority) Client(now time.Time, u User) (Pair, error) {
	return a.issue(leaf(now, pkix.Name{CommonName: u.Name, Organization: u.Groups[:1]}, x509.ExtKeyUsageClientAuth))
}

// Sign signs a certificate for a public key and returns it as PEM. It sets the serial number of the template, and
// NotBefore if it is zero. If the clock is not set, it moves both NotBefore and NotAfter.
func (a *Authority) Sign(now time.Time, template x509.Certificate, public any) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber, template.BasicConstraintsValid = serial, true
	if template.NotBefore.IsZero() {
		template.NotBefore = notBefore()
	}
	if now.Before(clockSet()) {
		template.NotBefore, template.NotAfter = notBefore(), unsetUntil()
	}
	if template.NotAfter.After(notAfter()) {
		template.NotAfter = notAfter()
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// KeepClient is Keep for a client certificate. It replaces a certificate that is Due or that another authority signed.
func (a *Authority) KeepClient(base string, now time.Time, u User) (Pair, error) {
	sign := func() (Pair, error) { return a.Client(now, u) }
	p, err := Keep(base, sign)
	if err == nil && !a.signed(p, now) {
		if err := os.Remove(base + ".crt"); err != nil {
			return Pair{}, err
		}
		return Keep(base, sign)
	}
	return p, err
}

// Due reports whether a certificate must be renewed, because it expires soon, or because it expires too late: the clock
// was ahead or not set when it was signed.
func Due(leaf *x509.Certificate, now time.Time) bool {
	left := leaf.NotAfter.Sub(now)
	return left < leafLife/5 || left > leafLife+24*time.Hour && !now.Before(clockSet())
}

// signed reports whether the authority signed p and p is not Due.
func (a *Authority) signed(p Pair, now time.Time) bool {
	loaded, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return false
	}
	return !Due(loaded.Leaf, now) && loaded.Leaf.CheckSignatureFrom(a.cert) == nil
}

// Pool returns the authority and the previous one.
func (a *Authority) Pool() *x509.CertPool { return a.pool }

func leaf(now time.Time, subject pkix.Name, usage x509.ExtKeyUsage) *x509.Certificate {
	until := now.Add(leafLife)
	if now.Before(clockSet()) {
		until = unsetUntil()
	}
	return &x509.Certificate{
		Subject: subject, NotBefore: notBefore(), NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
		BasicConstraintsValid: true,
	}
}

func (a *Authority) issue(t *x509.Certificate) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	return sign(t, a.cert, key, a.key)
}

func sign(t, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return Pair{}, err
	}
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, t, parent, &key.PublicKey, signer)
	if err != nil {
		return Pair{}, err
	}
	k, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), Key: k}, nil
}

// Keep reads base.crt and base.key, or creates them. It writes the key first: after a power failure between the two
// writes, the next call creates both again.
func Keep(base string, make func() (Pair, error)) (Pair, error) {
	cert, err := os.ReadFile(base + ".crt")
	if err == nil {
		key, err := os.ReadFile(base + ".key")
		return Pair{cert, key}, err
	}
	if !errors.Is(err, os.ErrNotExist) {
		return Pair{}, err
	}
	p, err := make()
	if err != nil {
		return Pair{}, err
	}
	return p, errors.Join(WriteSecret(base+".key", p.Key), WriteSecret(base+".crt", p.Cert))
}

// WriteSecret atomically replaces the file at path by data, readable only by its owner. When it returns, data is on
// disk.
func WriteSecret(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Forget removes the tokens below dir and the certificates of the admin and for kubelets, so that new ones are created.
func Forget(dir string) error {
	for _, name := range []string{"admin.crt", KubeletClient.Name + ".crt", "admin.token", "view.token", "node.token"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
