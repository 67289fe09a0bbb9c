// Package local connects commands to a server: through the socket in its data folder, or by the kubeconfig that the
// user names.
package local

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"monopod/apiserver/kit/unixsocket"
)

// maxAnswer is the maximum size of an answer that is kept in memory, in bytes.
const maxAnswer = 64 << 20

// Socket returns the path of the socket of the monopod on a data folder.
func Socket(dataDir string) string { return filepath.Join(dataDir, "monopod.sock") }

// Listen opens the socket of a data folder. The caller holds the lock of the folder.
func Listen(dataDir string) (net.Listener, error) { return unixsocket.Listen(Socket(dataDir)) }

// NodeDir returns the folder with what a machine that has joined knows. The data folder of a server has none.
func NodeDir(dataDir string) string { return filepath.Join(dataDir, "node") }

// NodeCertificate is the file in NodeDir with the certificate of the node, which is written last.
const NodeCertificate = "client.pem"

// Joined reports whether a machine has joined another one's server with the data folder.
func Joined(dataDir string) bool {
	_, err := os.Stat(filepath.Join(NodeDir(dataDir), NodeCertificate))
	return err == nil
}

// Transport sends requests through the socket of a data folder.
func Transport(dataDir string) *http.Transport {
	return &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", Socket(dataDir))
	}}
}

// Stopped reports whether an error of a request means that no server runs on the data folder.
func Stopped(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// Place is where a command finds the server. Set both before Flags.
type Place struct {
	DataDir    string // the default of --data-dir
	Kubeconfig string
	flags      *pflag.FlagSet
}

// Flags adds --data-dir and --kubeconfig.
func (p *Place) Flags(f *pflag.FlagSet) {
	p.flags = f
	f.StringVar(&p.DataDir, "data-dir", p.DataDir, "Data folder of the server, as given to serve.")
	f.StringVar(&p.Kubeconfig, "kubeconfig", "",
		"Kubeconfig of the server, instead of --data-dir (default KUBECONFIG, if --data-dir is not set).")
}

// Server sends requests to a server.
type Server struct {
	URL       string // without a path
	Namespace string // of the kubeconfig's context
	HTTP      *http.Client
	from      string // for errors
}

// At returns the server on a data folder, which is reached through its socket.
func At(dataDir string) *Server {
	return &Server{URL: socketURL, Namespace: metav1.NamespaceDefault, HTTP: &http.Client{Transport: Transport(dataDir)},
		from: dataDir}
}

// Local reports whether the server is reached through the socket of its data folder.
func (s *Server) Local() bool { return s.URL == socketURL }

// socketURL stands for the socket in URLs.
const socketURL = "http://monopod"

// Open returns the server. Nothing is sent yet.
func (p *Place) Open() (*Server, error) {
	file := p.Kubeconfig
	if file == "" && (p.flags == nil || !p.flags.Changed("data-dir")) {
		file = os.Getenv("KUBECONFIG")
	}
	if file == "" {
		return At(p.DataDir), nil
	}
	for _, one := range filepath.SplitList(file) {
		if _, err := os.Stat(one); err != nil && (p.Kubeconfig != "" || len(filepath.SplitList(file)) == 1) {
			return nil, fmt.Errorf("cannot read the kubeconfig %s: %w; name another one with --kubeconfig, or use --data-dir",
				one, errors.Unwrap(err))
		}
	}
	rules := clientcmd.ClientConfigLoadingRules{Precedence: filepath.SplitList(file)}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&rules, nil)
	cfg, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot read the kubeconfig %s: %w; name another one with --kubeconfig, or use --data-dir",
			file, err)
	}
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	return &Server{URL: strings.TrimSuffix(cfg.Host, "/"), Namespace: namespace, HTTP: client, from: file}, err
}

// Do sends a request and returns the answer, whose body the caller closes. An answer other than a success is the
// Status that it contains.
func (s *Server) Do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	return s.Send(ctx, method, path, bytes.NewReader(body), int64(len(body)))
}

// Send is Do with a body that is read while it is sent; size is its length in bytes, -1 if it is not known.
func (s *Server) Send(ctx context.Context, method, path string, body io.Reader, size int64) (*http.Response, error) {
	resp, err := s.Request(ctx, method, path, nil, body, size)
	if status := (*apierrors.StatusError)(nil); apierrors.IsNotFound(err) && errors.As(err, &status) {
		if advice := s.elsewhere(ctx, status.ErrStatus.Details); advice != "" {
			return nil, fmt.Errorf("%w: %s", err, advice)
		}
	}
	return resp, err
}

// Request is Send with headers. It does not search where an object that was not found may be.
func (s *Server) Request(ctx context.Context, method, path string, header http.Header, body io.Reader,
	size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.ContentLength = size
	resp, err := s.HTTP.Do(req)
	switch {
	case Stopped(err) && s.Local() && Joined(s.from):
		return nil, fmt.Errorf("%s is the data folder of a machine that has joined: run the command on the machine of its "+
			"server, or with --kubeconfig", s.from)
	case Stopped(err):
		return nil, fmt.Errorf(
			"no monopod runs on %s: start it with monopod serve, or name another one with --data-dir or --kubeconfig: %w",
			s.from, errors.Unwrap(err))
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w: run the command as the owner of %s", errors.Unwrap(err), s.from)
	case err != nil:
		return nil, s.explain(err)
	case resp.StatusCode < http.StatusMultipleChoices:
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // a Status is smaller
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" {
		return nil, s.advise(&apierrors.StatusError{ErrStatus: status})
	}
	if resp.StatusCode == http.StatusNotFound && strings.HasPrefix(path, monopodPaths) {
		return nil, fmt.Errorf("the server has no %s: it is not a Monopod, or an older one than this program; "+
			"compare monopod --version with the version that kubectl version shows, and check %s", req.URL.Path, s.from)
	}
	return nil, errors.New(cmp.Or(strings.TrimSpace(string(data)), resp.Status))
}

// Read sends a GET and returns the body of the answer.
func (s *Server) Read(ctx context.Context, path string) ([]byte, error) {
	resp, err := s.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("the answer to %s is larger than %d bytes", path, maxAnswer)
	}
	return data, err
}

// JSON sends a GET and decodes the answer.
func (s *Server) JSON(ctx context.Context, path string, into any) error {
	data, err := s.Read(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
