package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

// oneNode is an API with one Node.
type oneNode struct {
	API
	node *corev1.Node
}

func (a oneNode) Get(_ context.Context, ref client.Ref) (client.Object, error) {
	if ref.Resource != client.Nodes || ref.Name != a.node.Name {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return a.node, nil
}

// remote starts a kubelet, and returns a Connector that trusts the authority of its certificate if trusted is set.
func remote(t *testing.T, trusted bool, kubelet http.HandlerFunc) *Connector {
	t.Helper()
	s := httptest.NewTLSServer(kubelet)
	t.Cleanup(s.Close)
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: at.Addr().String()}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(at.Port())
	roots := x509.NewCertPool()
	if trusted {
		roots.AddCert(s.Certificate())
	}
	return New(Config{API: oneNode{node: node}, Kubelets: func() (*tls.Config, error) {
		return &tls.Config{RootCAs: roots}, nil
	}, Node: func(string) (client.Node, error) { return nil, nil }})
}

func TestRemoteKubelet(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	c := remote(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/containerLogs/default/p/c":
			fmt.Fprint(w, r.URL.RawQuery)
		case "/pods":
			fmt.Fprint(w, r.Header.Get("Authorization"), r.Header.Get("Impersonate-User"), "no credentials")
		default:
			http.Error(w, "no such container", http.StatusNotFound)
		}
	})
	n, err := c.NodeNamed(t.Context(), "far")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	opts := &corev1.PodLogOptions{Container: "c", Follow: true, TailLines: new(int64(2)), Timestamps: true}
	if err := n.Logs(t.Context(), pod, opts, &log); err != nil || log.String() != "follow=true&tailLines=2&timestamps=true" {
		t.Errorf("log %q, %v", log.String(), err)
	}
	opts.Container = "d"
	if err := n.Logs(t.Context(), pod, opts, &log); !apierrors.IsNotFound(err) || err.Error() != "no such container" {
		t.Errorf("the log of a missing container: %v", err)
	}
	exec, err := n.Exec(t.Context(), pod, &corev1.PodExecOptions{Container: "c", Command: []string{"ls", "/a b"},
		Stdout: true, Stderr: true, TTY: true})
	want := "/exec/default/p/c?command=ls&command=%2Fa+b&output=1&tty=1"
	if err != nil || exec.RequestURI() != want {
		t.Errorf("exec %v, %v; want %s", exec, err, want)
	}
	ports, err := n.PortForward(t.Context(), pod, &corev1.PodPortForwardOptions{Ports: []int32{80, 81}})
	if err != nil || ports.RequestURI() != "/portForward/default/p?port=80&port=81" {
		t.Errorf("port-forward %v, %v", ports, err)
	}
	// The credentials of a client do not reach the kubelet.
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Impersonate-User", "admin")
	if err := c.serveNode(w, r, "far", "/pods", ""); err != nil || w.Body.String() != "no credentials" {
		t.Errorf("%q, %v", w.Body, err)
	}
}

// An address of a Node at which something other than its kubelet listens gets no request.
func TestImpostorIsRefused(t *testing.T) {
	t.Parallel()
	c := remote(t, false, func(http.ResponseWriter, *http.Request) { t.Error("the impostor got a request") })
	n, err := c.NodeNamed(t.Context(), "far")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	err = n.Logs(t.Context(), pod, &corev1.PodLogOptions{Container: "c"}, &strings.Builder{})
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("logs: %v", err)
	}
	to, err := n.Exec(t.Context(), pod, &corev1.PodExecOptions{Container: "c", Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Process{Stdout: true}.open(t.Context(), targetAt(to, n))
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("exec: %v", err)
	}
}

// What another machine answers is bounded, and leads nowhere else.
func TestHostileKubelet(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	c := remote(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/containerLogs/default/p/redirect":
			http.Redirect(w, r, elsewhere.URL, http.StatusFound)
		case "/containerLogs/default/p/endless":
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		case "/exec/default/p/c":
			w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
			w.WriteHeader(http.StatusSwitchingProtocols)
		}
	})
	n, err := c.NodeNamed(t.Context(), "far")
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	var log strings.Builder
	err = n.Logs(t.Context(), pod, &corev1.PodLogOptions{Container: "redirect"}, &log)
	if err == nil || log.Len() > 0 {
		t.Errorf("a redirect: %q, %v", log.String(), err)
	}
	limited := &corev1.PodLogOptions{Container: "endless", LimitBytes: new(int64(100))}
	if err := n.Logs(t.Context(), pod, limited, &log); err != nil || log.Len() != 100 {
		t.Errorf("%d bytes of log, %v; want 100", log.Len(), err)
	}
	to, err := n.Exec(t.Context(), pod, &corev1.PodExecOptions{Container: "c", Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Process{Stdout: true}).open(t.Context(), targetAt(to, n)); err == nil {
		t.Error("a header of 2 MiB was accepted")
	}
}

func TestUnreachableKubelets(t *testing.T) {
	t.Parallel()
	c := remote(t, true, http.NotFound)
	c.API.(oneNode).node.Status.DaemonEndpoints.KubeletEndpoint.Port = 0
	if _, err := c.NodeNamed(t.Context(), "far"); !apierrors.IsServiceUnavailable(err) ||
		!strings.Contains(err.Error(), "start it with --kubelet-listen") {
		t.Errorf("a kubelet without a port: %v", err)
	}
	if _, err := c.NodeNamed(t.Context(), "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing node: %v", err)
	}
	c.Kubelets = nil
	if _, err := c.NodeNamed(t.Context(), "far"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a server that calls no kubelets: %v", err)
	}
}
