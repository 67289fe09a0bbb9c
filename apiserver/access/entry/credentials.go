package entry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/auth"
)

// renewCheck is the interval of checks for certificates to renew, in addition to the check at each handshake.
const renewCheck = 10 * time.Minute

// credentials contain the certificates and tokens in use. They are immutable and replaced as a whole.
type credentials struct {
	serving, admin *tls.Certificate
	tokens         auth.Authenticator
}

func (c *credentials) due(now time.Time) bool {
	return auth.Due(c.serving.Leaf, now) || auth.Due(c.admin.Leaf, now)
}

// certificate returns the server's certificate for a handshake: that of --tls-cert-file if it contains the name or
// address that the client connected to, otherwise the server's own. It first renews its own certificate if it is due,
// so that HTTPS works as soon as a wrong clock is corrected, and adds the address that the client connected to, so that
// a new address of the machine works from its first connection on.
func (a *Entry) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if a.files.covers(hello) {
		return a.files.serving, nil
	}
	if a.current.Load().due(a.cfg.Clock.Now()) {
		_ = a.renew() // Run logs the error and tries again; the old certificate may still work
	}
	if name := a.missingName(hello, a.current.Load().serving); name != "" {
		_ = a.addName(name) // the old certificate may still work
	}
	return a.current.Load().serving, nil
}

// Run renews the certificates until ctx ends.
func (a *Entry) Run(ctx context.Context, log *zap.Logger) error {
	tick := a.cfg.Clock.NewTicker(renewCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C():
		case <-ctx.Done():
			return nil
		}
		if !a.current.Load().due(a.cfg.Clock.Now()) {
			continue
		}
		if err := a.renew(); err != nil {
			log.Error("failed to renew the certificates", zap.Error(err))
			continue
		}
		log.Info("certificates renewed", zap.Time("until", a.current.Load().serving.Leaf.NotAfter))
	}
}

// renew reads or creates the files below pki/, renews certificates that are due, and updates the kubeconfig.
func (a *Entry) renew() error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	now, next := a.cfg.Clock.Now(), &credentials{}
	if old := a.current.Load(); old != nil && !auth.Due(old.serving.Leaf, now) {
		next.serving = old.serving
	} else if err := a.sign(next, now); err != nil {
		return err
	}
	admin, err := a.authority.KeepClient(a.pki("admin"), now, auth.Admin)
	if err := a.tolerateFullDisk(err); err != nil {
		return err
	}
	if next.admin, err = parse(admin); err != nil {
		return err
	}
	token, err := a.openTokens(next)
	if err != nil {
		return err
	}
	kubeconfig, err := auth.Kubeconfig("https://"+a.Reachable(), slices.Concat(a.CA, a.files.pem), admin, token)
	if err != nil {
		return err
	}
	err = auth.WriteKubeconfig(filepath.Join(a.cfg.Dir, "admin.kubeconfig"), kubeconfig)
	if err := a.tolerateFullDisk(err); err != nil {
		return err
	}
	a.current.Store(next)
	return nil
}

func (a *Entry) sign(next *credentials, now time.Time) error {
	serving, err := a.authority.Serving(now, a.hosts())
	if err == nil {
		next.serving, err = parse(serving)
	}
	return err
}

// FrontProxy returns the client certificate that identifies this server to aggregated API servers. It is stored in
// front-proxy-client.
func (a *Entry) FrontProxy() (*tls.Certificate, error) { return a.client(auth.FrontProxy) }

// Kubelets returns the TLS configuration for kubelets of other machines: the client certificate, which is stored in
// kube-apiserver-kubelet-client, and the authorities of which one must have signed the kubelet's certificate: the
// cluster's for nodes that run in a server, otherwise that of SignKubelet, if there is one.
func (a *Entry) Kubelets() (*tls.Config, error) {
	cert, err := a.client(auth.KubeletClient)
	if err != nil {
		return nil, err
	}
	roots := a.authority.Pool()
	_, err = os.Stat(a.pki("kubelet-ca.crt"))
	if shared := a.cfg.Agree != nil; err == nil || shared { // another server may have created it
		kubelets, err := a.kubeletAuthority()
		if err != nil {
			return nil, err
		}
		roots = roots.Clone()
		roots.AppendCertsFromPEM(kubelets.PEM)
	}
	return &tls.Config{Certificates: []tls.Certificate{*cert}, RootCAs: roots}, nil
}

// SignKubelet signs a serving certificate for the kubelet of another machine, with an authority that only Kubelets
// trusts.
func (a *Entry) SignKubelet(template x509.Certificate, public any) ([]byte, error) {
	authority, err := a.kubeletAuthority()
	if err != nil {
		return nil, err
	}
	return authority.Sign(a.cfg.Clock.Now(), template, public)
}

// kubeletAuthority returns the authority of the serving certificates of kubelets on other machines. It creates it if
// this is the first use.
func (a *Entry) kubeletAuthority() (*auth.Authority, error) {
	a.opening.Lock()
	defer a.opening.Unlock()
	if a.kubelets != nil {
		return a.kubelets, nil
	}
	var agree func([]byte) ([]byte, error)
	if a.cfg.Agree != nil {
		agree = func(mine []byte) ([]byte, error) { return a.cfg.Agree("kubelet-ca", mine) }
	}
	opened, err := auth.OpenKubeletAuthority(a.pki(), agree)
	if err != nil {
		return nil, fmt.Errorf("open the authority of kubelets: %w", err)
	}
	a.kubelets = opened
	return opened, nil
}

// client returns a client certificate of this server, which it creates if it is missing.
func (a *Entry) client(user auth.User) (*tls.Certificate, error) {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	pair, err := a.authority.KeepClient(a.pki(user.Name), a.cfg.Clock.Now(), user)
	if err := a.tolerateFullDisk(err); err != nil {
		return nil, err
	}
	return parse(pair)
}

// Sign signs a certificate with the installation's certificate authority.
func (a *Entry) Sign(template x509.Certificate, public any) ([]byte, error) {
	return a.authority.Sign(a.cfg.Clock.Now(), template, public)
}

func parse(p auth.Pair) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	return &cert, err
}

// openTokens reads or creates the tokens and returns the admin's.
func (a *Entry) openTokens(next *credentials) (string, error) {
	var authenticators []auth.Authenticator
	var admin string
	for _, holder := range a.holders() {
		token, err := auth.OpenToken(a.pki(holder.file))
		if err != nil {
			return "", fmt.Errorf("%s: %w", holder.file, err)
		}
		if admin == "" {
			admin = token
		}
		authenticators = append(authenticators, auth.Token(token, holder.user))
	}
	next.tokens = auth.Any(authenticators...)
	return admin, nil
}

type holder struct {
	file string
	user auth.User
}

// holders returns the users that have a token below pki/, the admin first.
func (a *Entry) holders() []holder {
	return []holder{
		{"admin.token", auth.Admin},
		{"view.token", auth.Viewer},
		{"node.token", auth.User{Name: auth.NodePrefix + a.cfg.Node, Groups: []string{auth.Nodes, auth.Authenticated}}},
	}
}

// Token returns the token of the admin, or the view token.
func (a *Entry) Token(view bool) (string, error) {
	n := 0
	if view {
		n = 1
	}
	return auth.OpenToken(a.pki(a.holders()[n].file))
}

// Rotate replaces the certificates of server and admin, and the tokens. The old ones become invalid. It updates the
// kubeconfig. It also replaces the certificate for kubelets, of which the old one stays valid at their ports as long as
// the authority.
func (a *Entry) Rotate() error {
	if err := a.forget(); err != nil {
		return err
	}
	if err := a.replaceServing(); err != nil {
		return err
	}
	return a.renew()
}

func (a *Entry) forget() error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	return auth.Forget(a.pki())
}

// replaceServing replaces the server's certificate.
func (a *Entry) replaceServing() error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	next := *a.current.Load()
	if err := a.sign(&next, a.cfg.Clock.Now()); err != nil {
		return err
	}
	a.current.Store(&next)
	return nil
}

// Authenticator authenticates by the tokens and certificates in use.
func (a *Entry) Authenticator() auth.Authenticator {
	return auth.Any(auth.Listener(), auth.Func(a.adminsCertificate), auth.Func(func(r *http.Request) (auth.User, bool) {
		return a.current.Load().tokens.Authenticate(r)
	}))
}

// adminsCertificate authenticates like auth.Certificates, except that only the admin's current certificate is valid.
func (a *Entry) adminsCertificate(r *http.Request) (auth.User, bool) {
	u, ok := auth.Certificates().Authenticate(r)
	if !ok || u.Name != auth.Admin.Name {
		return u, ok
	}
	return u, r.TLS.PeerCertificates[0].Equal(a.current.Load().admin.Leaf)
}
