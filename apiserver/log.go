package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// log answers a container's log as plain text.
func (s *Server) log(w http.ResponseWriter, r *http.Request, t target) error {
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		return err
	}
	pod, err := s.pod(r.Context(), t)
	if err != nil {
		return err
	}
	if errs := validateLogOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), pod.Name, errs)
	}
	if opts.Container, err = containerOf(pod, opts.Container); err != nil {
		return err
	}
	if pod.Spec.NodeName == "" { // it has said nothing yet
		w.WriteHeader(http.StatusNoContent)
		return nil
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

// logOptions reads the query; what it means validateLogOptions checks.
func logOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{Container: q.Get("container")}
	for name, into := range map[string]*bool{
		"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
		"insecureSkipTLSVerifyBackend": &o.InsecureSkipTLSVerifyBackend,
	} {
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
		if err != nil {
			return o, apierrors.NewBadRequest(fmt.Sprintf("%s: Invalid value: %q: must be a whole number", name, v))
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
	if q.Has("stream") {
		o.Stream = new(q.Get("stream"))
	}
	return o, nil
}

// validateLogOptions is upstream's ValidatePodLogOptions.
func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	return append(errs, validateStream(o)...)
}

func validateStream(o *corev1.PodLogOptions) field.ErrorList {
	if o.Stream == nil {
		return nil
	}
	switch *o.Stream {
	case corev1.LogStreamAll:
	case corev1.LogStreamStdout, corev1.LogStreamStderr:
		if o.TailLines != nil {
			return field.ErrorList{field.Forbidden(field.NewPath(""), "`tailLines` and specific `stream` are mutually exclusive for now")}
		}
	default:
		return field.ErrorList{field.NotSupported(field.NewPath("stream"), *o.Stream,
			[]string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout})}
	}
	return nil
}
