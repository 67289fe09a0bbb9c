package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/query"
)

// log writes a container's log as plain text.
func (c *Connector) log(w http.ResponseWriter, r *http.Request, ref client.Ref) error {
	opts, err := query.PodLogOptions(r.URL.Query())
	if err != nil {
		return err
	}
	pod, err := c.pod(r.Context(), ref)
	if err != nil {
		return err
	}
	if errs := query.ValidatePodLogOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod.Name, errs)
	}
	if opts.Container, err = containerOf(pod, opts.Container); err != nil {
		return err
	}
	if pod.Spec.NodeName == "" { // not scheduled: no output yet
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	node, err := c.node(r.Context(), pod)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	if auth.IsWebSocket(r) {
		return badRequest(
			Reader(codec.Hijackable{ResponseWriter: w}, r.WithContext(ctx), func(ctx context.Context, out io.Writer) {
				if err := node.Logs(ctx, pod, opts, out); err != nil && ctx.Err() == nil {
					fmt.Fprintln(out, err) // the header is sent, so only the body can contain the error
				}
			}))
	}
	out := &flushWriter{w: w, flush: http.NewResponseController(w).Flush}
	if err := node.Logs(ctx, pod, opts, out); err != nil && !out.wrote {
		return err
	}
	out.start()
	return nil
}

// flushWriter flushes every write. It sends the header with the first write, so that an error before it can be sent as
// a Status.
type flushWriter struct {
	w     http.ResponseWriter
	flush func() error
	wrote bool // the header is sent
}

func (f *flushWriter) start() {
	if !f.wrote {
		f.wrote = true
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
