package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/query"
	"monopod/apiserver/request"
)

// Stream connects the client to a log, a command or a port of a pod.
func (c *Connector) Stream(w http.ResponseWriter, r *http.Request, ref client.Ref) error {
	if ref.Resource != client.Pods {
		return apierrors.NewMethodNotSupported(ref.Resource.GroupResource(), r.Method)
	}
	switch ref.Subresource {
	case "log":
		return c.log(w, r, ref)
	case "exec", "attach", "portforward":
		return c.connect(w, r, ref)
	}
	return apierrors.NewMethodNotSupported(ref.Resource.GroupResource(), r.Method)
}

// connect requests a stream from the node and connects the client to it.
func (c *Connector) connect(w http.ResponseWriter, r *http.Request, ref client.Ref) error {
	opts, err := streamOptions(ref.Subresource, r.URL.Query())
	if err != nil {
		return err
	}
	obj, err := c.API.Connect(r.Context(), ref, opts)
	if err != nil {
		return err
	}
	pod := obj.(*corev1.Pod)
	if err := complete(opts, pod); err != nil {
		return err
	}
	node, err := c.node(r.Context(), pod)
	if err != nil {
		return err
	}
	if !request.IsUpgrade(r) {
		return apierrors.NewBadRequest("Upgrade request required")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	to, err := streamURL(ctx, opts, pod, node)
	if err != nil {
		return err
	}
	return c.carry(codec.Hijackable{ResponseWriter: w}, r.WithContext(ctx), opts, targetAt(to, node),
		c.missed(opts, pod, node))
}

// carry connects the client to the stream that the runtime serves. If both use SPDY it proxies the connection, unless
// output from before an attach may have to be sent.
func (c *Connector) carry(w http.ResponseWriter, r *http.Request, opts runtime.Object, to target,
	missed func(context.Context, io.Writer, io.Writer)) (err error) {
	var p Process
	switch o := opts.(type) {
	case *corev1.PodExecOptions:
		p = Process{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY}
	case *corev1.PodAttachOptions:
		p = Process{Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, TTY: o.TTY, Missed: missed}
	}
	ports, forwards := opts.(*corev1.PodPortForwardOptions)
	switch {
	case auth.IsWebSocket(r) && forwards:
		err = Forward(w, r, to, ports.Ports)
	case auth.IsWebSocket(r):
		err = p.Serve(w, r, to)
	case p.Missed != nil:
		err = p.ServeSPDY(w, r, to)
	default:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		// Without hangupWriter the proxy waits for the process after its client has left.
		c.proxyStream(to).ServeHTTP(hangupWriter{w, cancel}, r.WithContext(ctx))
	}
	return badRequest(err)
}

// badRequest converts a RequestError to a 400 error and returns other errors unchanged.
func badRequest(err error) error {
	if invalid := (*RequestError)(nil); errors.As(err, &invalid) {
		return apierrors.NewBadRequest(invalid.Error())
	}
	return err
}

const (
	// missedAge is the maximum age of a container whose earlier output an attach sends.
	missedAge = 10 * time.Second
	// missedTime limits reading that output.
	missedTime = 5 * time.Second
)

// missed returns a function that writes the log of a container that has just started, because the container may end
// before the attach reaches it, as with a short "kubectl run -i". It returns nil for older containers.
func (c *Connector) missed(opts runtime.Object, pod *corev1.Pod,
	node client.Node) func(context.Context, io.Writer, io.Writer) {
	attach, ok := opts.(*corev1.PodAttachOptions)
	if !ok {
		return nil
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
		pod.Status.EphemeralContainerStatuses) {
		if s.Name == attach.Container && s.State.Running != nil && c.Clock.Since(s.State.Running.StartedAt.Time) > missedAge {
			return nil
		}
	}
	return func(ctx context.Context, stdout, stderr io.Writer) {
		ctx, cancel := context.WithTimeout(ctx, missedTime)
		defer cancel()
		for stream, out := range map[string]io.Writer{corev1.LogStreamStdout: stdout, corev1.LogStreamStderr: stderr} {
			// Follow waits for the container's end, so that the log is complete.
			if err := node.Logs(ctx, pod, &corev1.PodLogOptions{Container: attach.Container, Stream: &stream, Follow: true},
				out); err != nil {
				c.Log.Debug("failed to read the log of a container that ended before its attach",
					zap.String("namespace", pod.Namespace), zap.String("pod", pod.Name), zap.Error(err))
			}
		}
	}
}

// pod returns the target pod.
func (c *Connector) pod(ctx context.Context, ref client.Ref) (*corev1.Pod, error) {
	obj, err := c.API.Get(ctx, ref.Sub(""))
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

func (c *Connector) node(ctx context.Context, pod *corev1.Pod) (client.Node, error) {
	if pod.Spec.NodeName == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", pod.Name))
	}
	return c.NodeNamed(ctx, pod.Spec.NodeName)
}

// streamOptions parses a stream's options in the query.
func streamOptions(sub string, q url.Values) (runtime.Object, error) {
	if sub == "portforward" {
		opts := &corev1.PodPortForwardOptions{}
		for _, some := range q["ports"] {
			for p := range strings.SplitSeq(some, ",") {
				port, err := strconv.ParseUint(p, 10, 16)
				if err != nil || port == 0 {
					return nil, apierrors.NewBadRequest("ports: Invalid value: " + strconv.Quote(p) +
						": must be a number from 1 to 65535")
				}
				opts.Ports = append(opts.Ports, int32(port))
			}
		}
		return opts, nil
	}
	var flags [4]bool
	for i, name := range []string{"stdin", "stdout", "stderr", "tty"} {
		var err error
		if flags[i], err = query.Bool(q, name); err != nil {
			return nil, err
		}
	}
	if sub == "attach" {
		return &corev1.PodAttachOptions{
			Container: q.Get("container"), Stdin: flags[0], Stdout: flags[1], Stderr: flags[2], TTY: flags[3]}, nil
	}
	return &corev1.PodExecOptions{
		Container: q.Get("container"), Command: q["command"],
		Stdin: flags[0], Stdout: flags[1], Stderr: flags[2], TTY: flags[3]}, nil
}

// complete sets the container of a stream.
func complete(opts runtime.Object, pod *corev1.Pod) (err error) {
	switch o := opts.(type) {
	case *corev1.PodAttachOptions:
		o.Container, err = containerOf(pod, o.Container)
	case *corev1.PodExecOptions:
		if o.Container, err = containerOf(pod, o.Container); err == nil && len(o.Command) == 0 {
			err = apierrors.NewBadRequest("command: Required value: you must specify at least 1 command for the container")
		}
	}
	return err
}

// streamURL requests the URL of the stream from the node.
func streamURL(ctx context.Context, opts runtime.Object, pod *corev1.Pod, node client.Node) (*url.URL, error) {
	switch o := opts.(type) {
	case *corev1.PodAttachOptions:
		return node.Attach(ctx, pod, o)
	case *corev1.PodExecOptions:
		return node.Exec(ctx, pod, o)
	}
	return node.PortForward(ctx, pod, opts.(*corev1.PodPortForwardOptions))
}

// proxyStream proxies the upgraded connection to the URL of the runtime or of a kubelet.
func (c *Connector) proxyStream(to target) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = to.URL
			p.Out.Host = to.Host
			removeCredentials(p.Out.Header)
		},
		Transport: to.transport(), FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.Fail(w, r, to.unreachable(err))
		},
	}
}

// containerOf returns the container of a request: the named container, or the only one of the pod. Clients evaluate the
// annotation for the default container.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	main, inits := containerNames(pod.Spec.Containers), containerNames(pod.Spec.InitContainers)
	switch {
	case name == "" && len(main) == 1:
		return main[0], nil
	case name == "":
		text := fmt.Sprintf("a container name must be specified for pod %s, choose one of: %v", pod.Name, main)
		if len(inits) > 0 {
			text += fmt.Sprintf(" or one of the init containers: %v", inits)
		}
		return "", apierrors.NewBadRequest(text)
	case slices.Contains(main, name), slices.Contains(inits, name), isEphemeral(pod, name):
		return name, nil
	}
	return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, pod.Name))
}

func containerNames(list []corev1.Container) (names []string) {
	for i := range list {
		names = append(names, list[i].Name)
	}
	return names
}

func isEphemeral(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.EphemeralContainers,
		func(c corev1.EphemeralContainer) bool { return c.Name == name })
}
