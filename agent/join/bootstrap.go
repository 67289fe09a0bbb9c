package join

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	rest "k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/bootstraptoken"
	"monopod/apiserver/kit/client"
)

const (
	// certificateLife is the validity of the node's certificate that is requested: a node may be offline for years. The
	// server may issue one for a shorter time.
	certificateLife = 10 * 365 * 24 * time.Hour
	// dialTime limits a connection to a server, and its TLS handshake.
	dialTime = 5 * time.Second
	// Pauses between attempts to reach the server.
	firstPause = time.Second
	maxPause   = 30 * time.Second
)

// Request is what the user says to join. Only Node and DataDir are required if the machine has joined before.
type Request struct {
	DataDir string
	Node    string // name of the node
	Server  string // https://HOST:PORT
	Token   string // bootstrap token
	CAHash  string // sha256:<hex>, of the public key of the cluster's authority
}

// Deps are what joining needs; all are required.
type Deps struct {
	// New returns an empty object of a resource or subresource.
	New   func(resource schema.GroupVersionResource, subresource string) client.Object
	Clock clock.Clock
	Log   *zap.Logger
}

// Join returns the identity of the node. The first time it gets one from the server, for which it waits until the server
// answers and an administrator or the token approves the request.
func (d Deps) Join(ctx context.Context, r Request) (*Identity, error) {
	f := folderIn(r.DataDir)
	i, err := f.open()
	if err == nil {
		return i, r.check(i)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; run monopod leave, and join again", err)
	}
	if err := r.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(f), 0o700); err != nil {
		return nil, err
	}
	ca, err := d.authority(ctx, r)
	if err != nil {
		return nil, err
	}
	i = &Identity{folder: f, ca: ca, servers: []string{r.Server}, changed: make(chan struct{})}
	to := &client.Remote{URL: r.Server, New: d.New, MaxObject: maxResponse, MaxList: maxResponse,
		HTTP: &http.Client{Transport: rest.NewBearerAuthRoundTripper(r.Token, transport(trusting(ca)))}}
	cert, err := d.firstCertificate(ctx, to, i.folder, r.Node)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Server, err)
	}
	if err := errors.Join(f.write(nameFile, []byte(r.Node+"\n")), f.write(caFile, ca),
		f.write(serversFile, []byte(r.Server+"\n"))); err != nil {
		return nil, err
	}
	if err := i.setCertificate(cert, d.Clock.Now()); err != nil {
		return nil, err
	}
	d.Log.Info("joined the cluster", zap.String("server", r.Server), zap.String("node", r.Node))
	return i, nil
}

// check returns an error if the machine is another node, or a node of another cluster.
func (r Request) check(i *Identity) error {
	const advice = "; run monopod leave first"
	name, err := os.ReadFile(i.folder.path(nameFile))
	if err != nil {
		return err
	}
	if was := strings.TrimSpace(string(name)); was != r.Node {
		return fmt.Errorf("this machine has joined as node %q, not %q%s", was, r.Node, advice)
	}
	hash, err := auth.CAHashPEM(i.ca)
	if err == nil && r.CAHash != "" && r.CAHash != hash {
		return errors.New("this machine is a node of another cluster: --ca-hash differs" + advice)
	}
	return err
}

// complete returns an error if something is missing that the first join needs.
func (r *Request) complete() error {
	if r.Server == "" || r.Token == "" || r.CAHash == "" {
		return errors.New("this machine has not joined yet: run the command that monopod token create prints on the server, " +
			"monopod join https://HOST:PORT --token ID.SECRET --ca-hash sha256:HEX")
	}
	u, err := url.Parse(r.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("the server must be https://HOST:PORT, got %q", r.Server)
	}
	r.Server = "https://" + withPort(u)
	return nil
}

// authority returns the authority of the cluster, which the server proves with its certificate. It waits until the
// server answers. Before the server is known to be the right one, nothing is sent to it.
func (d Deps) authority(ctx context.Context, r Request) ([]byte, error) {
	retry := backoff.Retry{First: firstPause, Most: maxPause}
	for {
		ca, err := presentedCA(ctx, r.Server, r.CAHash)
		if err == nil || errors.As(err, new(*wrongServer)) || errors.As(err, new(tls.RecordHeaderError)) {
			return ca, err
		}
		d.Log.Warn("the server does not answer, trying again", zap.String("server", r.Server), zap.Error(err))
		if !retry.Wait(ctx, d.Clock) {
			return nil, err
		}
	}
}

// wrongServer is why a server is not the one to join.
type wrongServer struct{ error }

func (w *wrongServer) Unwrap() error { return w.error }

// presentedCA returns the certificate with the hash from the chain that the server presents, if it has signed the
// server's certificate.
func presentedCA(ctx context.Context, server, hash string) ([]byte, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	var found *x509.Certificate
	config := &tls.Config{MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies
		VerifyConnection: func(s tls.ConnectionState) error {
			for _, cert := range s.PeerCertificates {
				if auth.CAHash(cert) == hash {
					found = cert
				}
			}
			if found == nil {
				return &wrongServer{fmt.Errorf("%s is not a server of the cluster with --ca-hash %s", server, hash)}
			}
			pool := x509.NewCertPool()
			pool.AddCert(found)
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, DNSName: u.Hostname()})
			if err != nil {
				return &wrongServer{err}
			}
			return nil
		}}
	ctx, cancel := context.WithTimeout(ctx, 2*dialTime)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", withPort(u))
	if err != nil {
		return nil, err
	}
	conn.Close()
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: found.Raw}), nil
}

func withPort(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return u.Host
}

// firstCertificate is certificate. It tries again while another machine may be joining under the same name: either that
// machine registers its Node soon, which is another error, or it was this one, which has left.
func (d Deps) firstCertificate(ctx context.Context, to client.Client, f folder, node string) ([]byte, error) {
	retry := backoff.Retry{First: firstPause, Most: maxPause}
	for {
		cert, err := d.certificate(ctx, to, f, node)
		if apierrors.IsUnauthorized(err) {
			return nil, errors.New("the token is not valid: it may have expired, or been deleted; " +
				"monopod token create on the server prints a new one")
		}
		if no := (*refused)(nil); !errors.As(err, &no) || no.reason != bootstraptoken.NameTaken {
			return cert, err
		}
		d.Log.Warn("not joined yet, trying again", zap.Error(err))
		if !retry.Wait(ctx, d.Clock) {
			return nil, err
		}
	}
}

// certificate requests a certificate of the node for the key in nextKeyFile, and waits until it is issued. After an
// interruption the same request goes on: its name is that of the key.
func (d Deps) certificate(ctx context.Context, to client.Client, f folder, node string) ([]byte, error) {
	key, err := auth.OpenKey(f.path(nextKeyFile))
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: auth.NodePrefix + node, Organization: []string{auth.Nodes}},
	}, key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("node-csr-%x", sha256.Sum256(public))
	_, err = to.Create(ctx, &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:           pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName:        certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:            []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			ExpirationSeconds: new(int32(certificateLife / time.Second)),
		},
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	cert, err := d.issued(ctx, to, name)
	if errors.As(err, new(*refused)) { // the next attempt needs another name
		err = errors.Join(err, os.Remove(f.path(nextKeyFile)))
	}
	return cert, err
}

// refused is why a request is not signed.
type refused struct{ reason, message string }

func (r *refused) Error() string { return "the request for a certificate was " + r.message }

// issued waits until a request is approved and its certificate issued. It tries again while no server answers.
func (d Deps) issued(ctx context.Context, to client.Client, name string) ([]byte, error) {
	retry := backoff.Retry{First: 50 * time.Millisecond, Most: maxPause}
	for waited := time.Duration(0); ; {
		r, err := client.Get[*certificatesv1.CertificateSigningRequest](ctx, to, "", name)
		if apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return nil, err
		}
		approved := false
		if err == nil {
			if len(r.Status.Certificate) > 0 {
				return r.Status.Certificate, nil
			}
			for _, c := range r.Status.Conditions {
				switch c.Type {
				case certificatesv1.CertificateDenied:
					return nil, &refused{c.Reason, "denied: " + c.Message}
				case certificatesv1.CertificateFailed:
					return nil, &refused{c.Reason, "not signed: " + c.Message}
				case certificatesv1.CertificateApproved:
					approved = true
				}
			}
		}
		pause := retry.Next()
		if waited += pause; waited > time.Second && !approved {
			d.Log.Warn("waiting until the request for a certificate is approved",
				zap.String("command", "kubectl certificate approve "+name), zap.Error(err))
		}
		if !backoff.Sleep(ctx, d.Clock, pause) {
			return nil, ctx.Err()
		}
	}
}
