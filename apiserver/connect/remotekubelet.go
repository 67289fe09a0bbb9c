package connect

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion/queryparams"

	"monopod/apiserver/kit/client"
)

// target is where a stream is served: by the runtime of this machine, or by the kubelet of another one.
type target struct {
	*url.URL
	kubelet *remoteKubelet // nil: the runtime
}

// dial connects to the target.
func (t target) dial(ctx context.Context) (net.Conn, error) {
	if t.kubelet != nil {
		return t.kubelet.dial(ctx)
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", t.Host)
}

// transport returns a transport for the target.
func (t target) transport() *http.Transport {
	if t.kubelet != nil {
		return t.kubelet.transport()
	}
	return &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: handshakeTime}).DialContext}
}

// unreachable returns the error of a failed connection to the target.
func (t target) unreachable(err error) error {
	if t.kubelet == nil {
		return fmt.Errorf("stream from the runtime: %w", err)
	}
	return t.kubelet.unreachable(err)
}

// NodeNamed returns a node by its name: the one in this process, or the kubelet of another machine, through the tunnel
// that it has opened, or at the address and port in the status of its Node.
func (c *Connector) NodeNamed(ctx context.Context, name string) (client.Node, error) {
	if c.Node != nil {
		if n, err := c.Node(name); n != nil || err != nil {
			return n, err
		}
	}
	if t := c.tunnels.get(name); t != nil {
		return &remoteKubelet{name: name, at: name, tunnel: t}, nil
	}
	if c.Kubelets == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q does not run in this process", name))
	}
	obj, err := c.API.Get(ctx, client.Ref{Resource: client.Nodes, Name: name})
	if err != nil {
		return nil, err
	}
	node := obj.(*corev1.Node)
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %q does not run in this process, and its kubelet has "+
			"no port, and no tunnel to this server: wait until it is connected, or start it with --kubelet-listen", name))
	}
	at, err := nodeHost(node, strconv.Itoa(int(port)))
	if err != nil {
		return nil, err
	}
	identity, err := c.Kubelets()
	if err != nil {
		return nil, fmt.Errorf("the client certificate for kubelets: %w", err)
	}
	return &remoteKubelet{name: name, at: at, tls: identity}, nil
}

// remoteKubelet calls the kubelet of another machine.
type remoteKubelet struct {
	name   string
	at     string      // host:port; the name of the node, for a tunnel
	tls    *tls.Config // unused for a tunnel
	tunnel nodeTunnel  // nil: none
}

var (
	_ client.Node  = (*remoteKubelet)(nil)
	_ http.Handler = (*remoteKubelet)(nil)
)

// targetAt returns the target of a stream to a pod of the node.
func targetAt(to *url.URL, node client.Node) target {
	kubelet, _ := node.(*remoteKubelet)
	return target{URL: to, kubelet: kubelet}
}

// dial connects to the kubelet.
func (k *remoteKubelet) dial(ctx context.Context) (net.Conn, error) {
	if k.tunnel != nil {
		return k.tunnel.Open()
	}
	return (&tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTime}, Config: k.tls}).DialContext(ctx, "tcp", k.at)
}

// transport returns a transport without idle connections: requests to other machines are rare.
func (k *remoteKubelet) transport() *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, handshakeTime)
		defer cancel()
		return k.dial(ctx)
	}
	return &http.Transport{DisableKeepAlives: true, DialContext: dial, DialTLSContext: dial}
}

// scheme returns the scheme of the kubelet's URLs. A tunnel is encrypted itself.
func (k *remoteKubelet) scheme() string {
	if k.tunnel != nil {
		return "http"
	}
	return "https"
}

func (k *remoteKubelet) url(query url.Values, path ...string) *url.URL {
	u := &url.URL{Scheme: k.scheme(), Host: k.at, Path: "/", RawQuery: query.Encode()}
	return u.JoinPath(path...)
}

// get sends a GET request about an object. It follows no redirects, which could lead anywhere. A response other than
// 200 is an error with the text of its body; the body of another one must be closed.
func (k *remoteKubelet) get(ctx context.Context, u *url.URL, resource, name string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := k.transport().RoundTrip(req)
	if err != nil {
		return nil, k.unreachable(err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxStatus)) // a part of it is enough
	failed := apierrors.NewGenericServerResponse(resp.StatusCode, "get", corev1.Resource(resource), name, "", 0, true)
	failed.ErrStatus.Message = strings.TrimSpace(string(text))
	return nil, failed
}

// Logs implements client.Node.
func (k *remoteKubelet) Logs(ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions, w io.Writer) error {
	query, err := queryparams.Convert(opts)
	if err != nil {
		return err
	}
	query.Del("container") // it is in the path
	resp, err := k.get(ctx, k.url(query, "containerLogs", pod.Namespace, pod.Name, opts.Container), "pods", pod.Name)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var log io.Reader = resp.Body
	if opts.LimitBytes != nil {
		log = io.LimitReader(log, *opts.LimitBytes)
	}
	_, err = io.Copy(w, log)
	return err
}

// Exec implements client.Node.
func (k *remoteKubelet) Exec(_ context.Context, pod *corev1.Pod, o *corev1.PodExecOptions) (*url.URL, error) {
	query := streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY)
	query[corev1.ExecCommandParam] = o.Command
	return k.url(query, "exec", pod.Namespace, pod.Name, o.Container), nil
}

// Attach implements client.Node.
func (k *remoteKubelet) Attach(_ context.Context, pod *corev1.Pod, o *corev1.PodAttachOptions) (*url.URL, error) {
	return k.url(streamQuery(o.Stdin, o.Stdout, o.Stderr, o.TTY), "attach", pod.Namespace, pod.Name, o.Container), nil
}

// PortForward implements client.Node.
func (k *remoteKubelet) PortForward(_ context.Context, pod *corev1.Pod,
	o *corev1.PodPortForwardOptions) (*url.URL, error) {
	query := url.Values{}
	for _, port := range o.Ports {
		query.Add(corev1.PortHeader, strconv.Itoa(int(port)))
	}
	return k.url(query, "portForward", pod.Namespace, pod.Name), nil
}

// streamQuery returns the kubelet's names of the streams of a process.
func streamQuery(stdin, stdout, stderr, tty bool) url.Values {
	query := url.Values{}
	for name, wanted := range map[string]bool{corev1.ExecStdinParam: stdin, corev1.ExecStdoutParam: stdout,
		corev1.ExecStderrParam: stderr && !tty, corev1.ExecTTYParam: tty} {
		if wanted {
			query.Set(name, "1")
		}
	}
	return query
}

// ServeHTTP passes a request to the kubelet.
func (k *remoteKubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = k.scheme(), k.at, k.at
		},
		Transport: k.transport(), FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { failAsText(w, k.unreachable(err)) },
	}).ServeHTTP(w, r)
}

func (k *remoteKubelet) unreachable(err error) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("cannot reach the kubelet of node %q: %v", k.name, err))
}
