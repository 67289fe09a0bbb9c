package entry

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"monopod/apiserver/access/auth"
)

// renewCheck is how often the certificates' ends are looked at, beside every
// handshake.
const renewCheck = 10 * time.Minute

// credentials are what clients and server prove themselves with: immutable,
// replaced as a whole.
type credentials struct {
	serving, admin *tls.Certificate
	tokens         auth.Authenticator
}

func (c *credentials) due(now time.Time) bool {
	return auth.Due(c.serving.Leaf, now) || auth.Due(c.admin.Leaf, now)
}

// certificate is the server's for a handshake. One that is due is replaced first,
// so that HTTPS works from the moment on at which a wrong clock comes right; and one
// without the address that the client dialled, so that a new address of the machine
// works from its first connection on.
func (a *Entry) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if a.current.Load().due(a.cfg.Clock.Now()) {
		_ = a.renew() // Run tries again, and says why it could not; what there is may do
	}
	if name := missing(hello, a.current.Load().serving); name != "" {
		_ = a.include(name) // what there is may do
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
			log.Error("certificates were not renewed", zap.Error(err))
			continue
		}
		log.Info("certificates renewed", zap.Time("until", a.current.Load().serving.Leaf.NotAfter))
	}
}

// renew reads or makes what is below pki/, signs what is due anew, and tells it to
// the kubeconfig.
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
	if err := a.bear(err); err != nil {
		return err
	}
	if next.admin, err = parse(admin); err != nil {
		return err
	}
	token, err := a.openTokens(next)
	if err != nil {
		return err
	}
	kubeconfig, err := auth.Kubeconfig("https://"+a.Reachable(), a.CA, admin, token)
	if err != nil {
		return err
	}
	if err := a.bear(auth.WriteKubeconfig(filepath.Join(a.cfg.Dir, "admin.kubeconfig"), kubeconfig)); err != nil {
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

func parse(p auth.Pair) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	return &cert, err
}

// openTokens reads or makes the tokens and returns the admin's.
func (a *Entry) openTokens(next *credentials) (string, error) {
	var known []auth.Authenticator
	var admin string
	for _, holder := range a.holders() {
		token, err := auth.OpenToken(a.pki(holder.file))
		if err != nil {
			return "", fmt.Errorf("%s: %w", holder.file, err)
		}
		if admin == "" {
			admin = token
		}
		known = append(known, auth.Token(token, holder.user))
	}
	next.tokens = auth.Any(known...)
	return admin, nil
}

type holder struct {
	file string
	user auth.User
}

// holders are the users with a token of their own below pki/, the admin first.
func (a *Entry) holders() []holder {
	return []holder{
		{"admin.token", auth.Admin},
		{"view.token", auth.Viewer},
		{"node.token", auth.User{Name: auth.NodePrefix + a.cfg.Node, Groups: []string{auth.Nodes, auth.Authenticated}}},
	}
}

// Rotate makes the certificates of server and admin and the tokens anew; what
// there was is good no more. The kubeconfig says the new ones.
func (a *Entry) Rotate() error {
	if err := auth.Forget(a.pki()); err != nil {
		return err
	}
	if err := a.resign(); err != nil {
		return err
	}
	return a.renew()
}

// resign gives the server another certificate.
func (a *Entry) resign() error {
	a.renewing.Lock()
	defer a.renewing.Unlock()
	next := *a.current.Load()
	if err := a.sign(&next, a.cfg.Clock.Now()); err != nil {
		return err
	}
	a.current.Store(&next)
	return nil
}

// Authenticator knows those who come in.
func (a *Entry) Authenticator() auth.Authenticator {
	return auth.Any(auth.Listener(), auth.Func(a.adminsCertificate), auth.Func(func(r *http.Request) (auth.User, bool) {
		return a.current.Load().tokens.Authenticate(r)
	}))
}

// adminsCertificate is auth.Certificates, but that of the admin's certificates
// only the present one is good.
func (a *Entry) adminsCertificate(r *http.Request) (auth.User, bool) {
	u, ok := auth.Certificates().Authenticate(r)
	if !ok || u.Name != auth.Admin.Name {
		return u, ok
	}
	return u, r.TLS.PeerCertificates[0].Equal(a.current.Load().admin.Leaf)
}
