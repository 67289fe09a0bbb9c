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

// Certificates start as far in the past as a clock can go, so that a device whose
// clock went back still takes them. The authority lives as long as the device;
// what it signs lives leafLife and is signed anew in the last fifth of it. A clock
// before clockSet says nothing: what is signed then lives until unsetUntil.
const leafLife = 10 * 365 * 24 * time.Hour

func notBefore() time.Time  { return time.Unix(0, 0).UTC() }
func notAfter() time.Time   { return time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC) }
func clockSet() time.Time   { return time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) }
func unsetUntil() time.Time { return time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC) }

// Pair is a certificate and its key, PEM encoded.
type Pair struct{ Cert, Key []byte }

// Authority signs the certificates of one installation.
type Authority struct {
	PEM  []byte // its own certificate, and the one before it as long as that lives
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

// OpenAuthority reads ca.crt and ca.key in dir, or makes them. What the authority
// in ca.old.crt signed is good too (see NewAuthority).
func OpenAuthority(dir string) (*Authority, error) {
	pair, err := Keep(filepath.Join(dir, "ca"), newAuthority)
	if err != nil {
		return nil, err
	}
	loaded, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	key, ok := loaded.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s: ca.key is a %T, want an ECDSA key", dir, loaded.PrivateKey)
	}
	a := &Authority{PEM: pair.Cert, cert: loaded.Leaf, key: key}
	old, err := os.ReadFile(filepath.Join(dir, oldAuthority))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	a.PEM = slices.Concat(a.PEM, old)
	a.pool = x509.NewCertPool()
	a.pool.AppendCertsFromPEM(a.PEM)
	return a, nil
}

// oldAuthority is the certificate of the authority before this one.
const oldAuthority = "ca.old.crt"

// NewAuthority takes a new authority into use from the next OpenAuthority on. What
// the one before signed stays good for as long as that lives, what those before it
// signed does not.
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

func newAuthority() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	t := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "monopod-ca"},
		NotBefore: notBefore(), NotAfter: notAfter(),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
		IsCA:     true, BasicConstraintsValid: true,
	}
	return sign(t, t, key, key)
}

// Serving signs a server certificate for the hosts, names or addresses.
func (a *Authority) Serving(now time.Time, hosts []string) (Pair, error) {
	t := leaf(now, pkix.Name{CommonName: "monopod"}, x509.ExtKeyUsageServerAuth)
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	return a.issue(t)
}

// Client signs a client certificate for u.
func (a *Authority) Client(now time.Time, u User) (Pair, error) {
	return a.issue(leaf(now, pkix.Name{CommonName: u.Name, Organization: u.Groups[:1]}, x509.ExtKeyUsageClientAuth))
}

// KeepClient is Client kept at base, as Keep does, and made anew when it is Due or
// another authority signed it.
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

// Due says that a certificate is to be signed anew: little is left of its life, or
// more than there could be, as the clock was ahead when it was signed or not set.
func Due(leaf *x509.Certificate, now time.Time) bool {
	left := leaf.NotAfter.Sub(now)
	return left < leafLife/5 || left > leafLife+24*time.Hour && !now.Before(clockSet())
}

// signed says that the authority vouches for p, now and for a while.
func (a *Authority) signed(p Pair, now time.Time) bool {
	loaded, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return false
	}
	return !Due(loaded.Leaf, now) && loaded.Leaf.CheckSignatureFrom(a.cert) == nil
}

// Pool holds the authority, and the one before it.
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

// Keep reads base.crt and base.key, or makes them and keeps them. The key is
// written first: a power cut between the two makes both anew.
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

// WriteSecret replaces the file at path by data, readable by its owner alone. A
// power cut leaves the old or the new content; after it returns, the new.
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

// Forget removes the admin's certificate and the tokens below dir, which are made
// anew when they are needed next.
func Forget(dir string) error {
	for _, name := range []string{"admin.crt", "admin.token", "view.token", "node.token"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
