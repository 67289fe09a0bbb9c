package server

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/proxy"

	"monopod/agent/podapi/spec"
	"monopod/apiserver/kit/query"
)

// maxCommand is the maximum size of the body of a request to run a command, in bytes.
const maxCommand = 1 << 20

// streams adds the paths of streams to pods. A path may contain the pod's uid before the container's name.
func (s *server) streams(mux *http.ServeMux) {
	const pod = "{namespace}/{pod}"
	for path, do := range map[string]func(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error{
		"POST /run/": s.run, "POST /exec/": s.exec, "GET /exec/": s.exec, "POST /attach/": s.attach, "GET /attach/": s.attach,
	} {
		mux.HandleFunc(path+pod+"/{container}", s.withPod(do))
		mux.HandleFunc(path+pod+"/{uid}/{container}", s.withPod(do))
	}
	for _, method := range []string{"GET", "POST"} {
		mux.HandleFunc(method+" /portForward/"+pod, s.withPod(s.portForward))
		mux.HandleFunc(method+" /portForward/"+pod+"/{uid}", s.withPod(s.portForward))
	}
	mux.HandleFunc("GET /containerLogs/"+pod+"/{container}", s.withPod(s.containerLogs))
}

// withPod returns a handler that calls do with the pod in the path.
func (s *server) withPod(do func(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
		pod, ok := s.Node.Pod(name)
		uid, container := r.PathValue("uid"), r.PathValue("container")
		var err error
		switch {
		case !ok, uid != "" && string(pod.UID) != uid:
			err = notFound("pod %q does not exist", name)
		case container != "" && spec.Find(pod, container) == nil:
			err = notFound("container %q not found in pod %q", container, name.Name)
		default:
			err = do(w, r, pod)
		}
		if err != nil {
			fail(w, err)
		}
	}
}

func notFound(format string, args ...any) error {
	err := apierrors.NewNotFound(corev1.Resource("pods"), "")
	err.ErrStatus.Message = fmt.Sprintf(format, args...)
	return err
}

func (s *server) exec(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	o, err := streamsOf(r)
	if err != nil {
		return err
	}
	to, err := s.Node.Exec(r.Context(), pod, &corev1.PodExecOptions{
		Container: r.PathValue("container"), Command: r.URL.Query()[corev1.ExecCommandParam],
		Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY})
	return proxyTo(w, r, to, err)
}

func (s *server) attach(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	o, err := streamsOf(r)
	if err != nil {
		return err
	}
	o.Container = r.PathValue("container")
	to, err := s.Node.Attach(r.Context(), pod, o)
	return proxyTo(w, r, to, err)
}

// streamsOf parses which streams a client requests. A terminal has no separate standard error.
func streamsOf(r *http.Request) (*corev1.PodAttachOptions, error) {
	o, q := &corev1.PodAttachOptions{}, r.URL.Query()
	for name, into := range map[string]*bool{
		corev1.ExecStdinParam: &o.Stdin, corev1.ExecStdoutParam: &o.Stdout, corev1.ExecStderrParam: &o.Stderr,
		corev1.ExecTTYParam: &o.TTY,
	} {
		var err error
		if *into, err = query.Bool(q, name); err != nil {
			return nil, err
		}
	}
	if o.TTY {
		o.Stderr = false
	}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return nil, apierrors.NewBadRequest("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

func (s *server) portForward(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	opts := &corev1.PodPortForwardOptions{}
	for _, list := range r.URL.Query()[corev1.PortHeader] {
		for p := range strings.SplitSeq(list, ",") {
			port, err := strconv.ParseUint(p, 10, 16)
			if err != nil || port == 0 {
				return apierrors.NewBadRequest(fmt.Sprintf("unable to parse %q as a port", p))
			}
			opts.Ports = append(opts.Ports, int32(port))
		}
	}
	to, err := s.Node.PortForward(r.Context(), pod, opts)
	return proxyTo(w, r, to, err)
}

// proxyTo proxies the connection to the runtime's stream.
func proxyTo(w http.ResponseWriter, r *http.Request, to *url.URL, err error) error {
	if err == nil {
		proxy.NewUpgradeAwareHandler(to, nil, false, true, responder{}).ServeHTTP(w, r)
	}
	return err
}

// responder sends the error to a client whose stream did not start.
type responder struct{}

// Error implements proxy.ErrorResponder.
func (responder) Error(w http.ResponseWriter, _ *http.Request, err error) { fail(w, err) }

// run runs a command, whose arguments are separated by spaces, and responds with its output.
func (s *server) run(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	r.Body = http.MaxBytesReader(w, r.Body, maxCommand)
	cmd := r.FormValue("cmd")
	if cmd == "" {
		return apierrors.NewBadRequest("cmd is required: the command to run, as in cmd=ls%20-l")
	}
	out, err := s.Node.RunInContainer(r.Context(), pod, r.PathValue("container"), strings.Split(cmd, " "))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json") // upstream's, although the output is no JSON
	_, _ = w.Write(out)                                // the client may have left
	return nil
}

// containerLogs serves a container's log. "tail" is an old name of "tailLines".
func (s *server) containerLogs(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	q := r.URL.Query()
	if tail := q.Get("tail"); tail != "" {
		q.Set("tailLines", tail)
		if tail == "all" {
			q.Del("tailLines")
		}
	}
	opts, err := query.PodLogOptions(q)
	if err != nil {
		return err
	}
	if errs := query.ValidatePodLogOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod.Name, errs)
	}
	opts.Container = r.PathValue("container")
	out := &flushWriter{w: w, flush: http.NewResponseController(w).Flush}
	if err := s.Node.Logs(r.Context(), pod, opts, out); err != nil && !out.wrote {
		return err
	}
	return nil
}

// flushWriter flushes every write.
type flushWriter struct {
	w     http.ResponseWriter
	flush func() error
	wrote bool // the header is sent
}

// Write implements io.Writer.
func (f *flushWriter) Write(p []byte) (int, error) {
	if !f.wrote {
		f.wrote = true
		f.w.Header().Set("Content-Type", "text/plain")
	}
	n, err := f.w.Write(p)
	return n, errors.Join(err, f.flush())
}
