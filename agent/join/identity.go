package join

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/local"
)

// Identity is what a node needs to talk to its servers. It is stored in <data-dir>/node, readable only by its owner.
type Identity struct {
	folder folder
	ca     []byte // PEM

	mu      sync.Mutex // guards the fields below
	cert    *tls.Certificate
	issued  time.Time // the time of this machine when it got cert
	servers []string
	changed chan struct{} // closed and replaced when servers change
}

// folder is <data-dir>/node.
type folder string

// The files of the folder.
const (
	nameFile    = "name"                // of the node
	caFile      = "ca.crt"              // the authority of the cluster
	serversFile = "servers"             // a URL in each line; the first one is that of the join
	clientFile  = local.NodeCertificate // the node's certificate and its key, in one file so that they never differ
	nextKeyFile = "next.key"            // of the certificate that is requested
)

func folderIn(dataDir string) folder { return folder(local.NodeDir(dataDir)) }

// Cache returns the folder for what the node has read from its servers.
func Cache(dataDir string) string { return folderIn(dataDir).path("cache") }

func (f folder) path(name string) string { return filepath.Join(string(f), name) }

func (f folder) write(name string, data []byte) error { return auth.WriteSecret(f.path(name), data) }

// open reads the identity. It returns fs.ErrNotExist if the machine has not joined.
func (f folder) open() (*Identity, error) {
	i := &Identity{folder: f, changed: make(chan struct{})}
	info, err := os.Stat(f.path(clientFile)) // written last
	if err != nil {
		return nil, err
	}
	i.issued = info.ModTime()
	pair, err := os.ReadFile(f.path(clientFile))
	if err != nil {
		return nil, err
	}
	if i.ca, err = os.ReadFile(f.path(caFile)); err != nil {
		return nil, err
	}
	servers, err := os.ReadFile(f.path(serversFile))
	if err != nil {
		return nil, err
	}
	if i.servers = strings.Fields(string(servers)); len(i.servers) == 0 {
		return nil, fmt.Errorf("%s names no server", f.path(serversFile))
	}
	i.cert, err = parsePair(pair)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path(clientFile), err)
	}
	return i, nil
}

func parsePair(data []byte) (*tls.Certificate, error) {
	cert, err := tls.X509KeyPair(data, data)
	return &cert, err
}

// Servers returns the URLs of the servers, without a path. The first one is that of the join.
func (i *Identity) Servers() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.servers
}

// watchServers returns the servers, and a channel that is closed when they change.
func (i *Identity) watchServers() ([]string, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.servers, i.changed
}

// SetServers stores the URLs of the other servers. One goroutine calls it.
func (i *Identity) SetServers(others []string) error {
	now := i.Servers()
	next := now[:1:1]
	for _, url := range others {
		if !slices.Contains(next, url) {
			next = append(next, url)
		}
	}
	if slices.Equal(next, now) {
		return nil
	}
	if err := i.folder.write(serversFile, []byte(strings.Join(next, "\n")+"\n")); err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.servers = next
	close(i.changed)
	i.changed = make(chan struct{})
	return nil
}

// TLS returns the TLS configuration for the servers. Each handshake uses the newest certificate.
func (i *Identity) TLS() *tls.Config {
	config := trusting(i.ca)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return i.certificate(), nil
	}
	return config
}

// trusting returns a TLS configuration for servers whose certificates the authority has signed.
func trusting(ca []byte) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
}

func (i *Identity) certificate() *tls.Certificate {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cert
}

// due reports whether a fifth of the certificate's life is left. Its NotBefore is not the time when it was issued.
func (i *Identity) due(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	until := i.cert.Leaf.NotAfter
	return until.Sub(now) < until.Sub(i.issued)/5
}

// setCertificate stores a certificate for the key in nextKeyFile, issued now.
func (i *Identity) setCertificate(cert []byte, now time.Time) error {
	key, err := os.ReadFile(i.folder.path(nextKeyFile))
	if err != nil {
		return err
	}
	pair := slices.Concat(cert, key)
	next, err := parsePair(pair)
	if err != nil {
		return fmt.Errorf("the server has issued a wrong certificate: %w", err)
	}
	if err := i.folder.write(clientFile, pair); err != nil {
		return err
	}
	i.mu.Lock()
	i.cert, i.issued = next, now
	i.mu.Unlock()
	return os.Remove(i.folder.path(nextKeyFile))
}
