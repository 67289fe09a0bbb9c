package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/client"
)

// stream connects the client to a pod's container: its log, a command, a port.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, t target) error {
	e, err := s.registry.Entry(r.Context(), t.ref)
	if err != nil {
		return err
	}
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	switch t.ref.Subresource {
	case "log":
		return s.log(w, r, pod)
	case "exec", "attach", "portforward":
	default:
		return apierrors.NewMethodNotSupported(t.ref.Resource.GroupResource(), r.Method)
	}
	if !isUpgrade(r) {
		return apierrors.NewBadRequest("you must specify a protocol upgrade: Upgrade request required")
	}
	node, err := s.node(pod)
	if err != nil {
		return err
	}
	to, err := streamURL(r, t.ref.Subresource, pod, node)
	if err != nil {
		return err
	}
	s.proxy(to).ServeHTTP(w, r)
	return nil
}

func isUpgrade(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

func (s *Server) node(pod *corev1.Pod) (client.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	if s.Node == nil {
		return nil, apierrors.NewServiceUnavailable("no node runs in this process")
	}
	return s.Node(pod.Spec.NodeName)
}

// streamURL asks the node where the stream is served.
func streamURL(r *http.Request, sub string, pod *corev1.Pod, node client.Node) (*url.URL, error) {
	q := r.URL.Query()
	if sub == "portforward" {
		opts := &corev1.PodPortForwardOptions{}
		for _, p := range q["ports"] {
			port, err := strconv.ParseInt(p, 10, 32)
			if err != nil {
				return nil, apierrors.NewBadRequest("ports: Invalid value: " + strconv.Quote(p))
			}
			opts.Ports = append(opts.Ports, int32(port))
		}
		return node.PortForward(r.Context(), pod, opts)
	}
	container, err := containerOf(pod, q.Get("container"))
	if err != nil {
		return nil, err
	}
	var flags [4]bool
	for i, name := range []string{"stdin", "stdout", "stderr", "tty"} {
		if flags[i], err = readBool(q, name); err != nil {
			return nil, err
		}
	}
	if sub == "attach" {
		return node.Attach(r.Context(), pod, &corev1.PodAttachOptions{
			Container: container, Stdin: flags[0], Stdout: flags[1], Stderr: flags[2], TTY: flags[3]})
	}
	if len(q["command"]) == 0 {
		return nil, apierrors.NewBadRequest("command: Required value: you must specify at least 1 command for the container")
	}
	return node.Exec(r.Context(), pod, &corev1.PodExecOptions{
		Container: container, Command: q["command"], Stdin: flags[0], Stdout: flags[1], Stderr: flags[2], TTY: flags[3]})
}

// proxy hands the upgraded connection through to where the runtime serves it.
func (s *Server) proxy(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = to
			p.Out.Host = to.Host
			p.Out.Header.Del("Authorization")
			p.Out.Header.Del("Cookie")
		},
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.fail(w, r, apierrors.NewInternalError(fmt.Errorf("stream from the runtime: %w", err)))
		},
	}
}

// containerOf is the container a request is about: the one named, the only one,
// or the one the pod says is its default.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var names, initNames []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range pod.Spec.InitContainers {
		initNames = append(initNames, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		initNames = append(initNames, c.Name)
	}
	if name == "" {
		name = pod.Annotations["kubectl.kubernetes.io/default-container"]
	}
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, names))
	case !slices.Contains(names, name) && !slices.Contains(initNames, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
	}
	return name, nil
}

// log answers a container's log as plain text.
func (s *Server) log(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		return err
	}
	if opts.Container, err = containerOf(pod, opts.Container); err != nil {
		return err
	}
	node, err := s.node(pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	out := &flushWriter{w: w, flush: http.NewResponseController(w).Flush}
	if err := node.Logs(ctx, pod, opts, out); err != nil && !out.started {
		return err
	}
	out.start()
	return nil
}

// flushWriter sends every write on at once; the header goes with the first, so
// that an error before it can still be a Status.
type flushWriter struct {
	w       http.ResponseWriter
	flush   func() error
	started bool
}

func (f *flushWriter) start() {
	if !f.started {
		f.started = true
		f.w.Header().Set("Content-Type", "text/plain")
		f.w.WriteHeader(http.StatusOK)
	}
}

// Write implements io.Writer.
func (f *flushWriter) Write(p []byte) (int, error) {
	f.start()
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.flush())
}

func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{Container: q.Get("container")}
	for name, into := range map[string]*bool{"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps} {
		var err error
		if *into, err = readBool(q, name); err != nil {
			return o, err
		}
	}
	for name, into := range map[string]**int64{"tailLines": &o.TailLines, "sinceSeconds": &o.SinceSeconds, "limitBytes": &o.LimitBytes} {
		v := q.Get(name)
		if v == "" {
			continue
		}
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 0 {
			return o, apierrors.NewBadRequest(fmt.Sprintf("%s: Invalid value: %q: must be a whole number, at least 0", name, v))
		}
		*into = &n
	}
	if v := q.Get("sinceTime"); v != "" {
		at, err := time.Parse(time.RFC3339, v)
		if err != nil {
			return o, apierrors.NewBadRequest(fmt.Sprintf("sinceTime: Invalid value: %q: must be a time such as 2006-01-02T15:04:05Z", v))
		}
		o.SinceTime = &metav1.Time{Time: at}
	}
	return o, nil
}
