// Package query parses queries that both the API server and a node serve.
package query

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodLogOptions parses the query of a request for a container's log; ValidatePodLogOptions validates the result.
func PodLogOptions(q url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{Container: q.Get("container")}
	for name, into := range map[string]*bool{
		"follow": &o.Follow, "previous": &o.Previous, "timestamps": &o.Timestamps,
		"insecureSkipTLSVerifyBackend": &o.InsecureSkipTLSVerifyBackend,
	} {
		var err error
		if *into, err = Bool(q, name); err != nil {
			return o, err
		}
	}
	for name, into := range map[string]**int64{"tailLines": &o.TailLines, "sinceSeconds": &o.SinceSeconds,
		"limitBytes": &o.LimitBytes} {
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
			return o, apierrors.NewBadRequest(
				fmt.Sprintf("sinceTime: Invalid value: %q: must be a time such as 2006-01-02T15:04:05Z", v))
		}
		o.SinceTime = &metav1.Time{Time: at}
	}
	if q.Has("stream") {
		o.Stream = new(q.Get("stream"))
	}
	return o, nil
}

// ValidatePodLogOptions is upstream's function of that name.
func ValidatePodLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs,
			field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
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
			return field.ErrorList{field.Forbidden(field.NewPath(""),
				"`tailLines` and specific `stream` are mutually exclusive for now")}
		}
	default:
		return field.ErrorList{field.NotSupported(field.NewPath("stream"), *o.Stream,
			[]string{corev1.LogStreamAll, corev1.LogStreamStderr, corev1.LogStreamStdout})}
	}
	return nil
}

// Bool parses a boolean of a query as upstream does: present without a value is true.
func Bool(q url.Values, name string) (bool, error) {
	switch v := q.Get(name); strings.ToLower(v) {
	case "":
		return q.Has(name), nil
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	default:
		return false, apierrors.NewBadRequest(name + ": Invalid value: " + strconv.Quote(v) + ": must be true or false")
	}
}

// Revision parses a resourceVersion; an empty one is 0.
func Revision(resourceVersion string) (int64, error) {
	if resourceVersion == "" {
		return 0, nil
	}
	rev, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil || rev < 0 {
		return 0, apierrors.NewBadRequest(
			fmt.Sprintf("resourceVersion: Invalid value: %q: must be a decimal number, as returned by the server",
				resourceVersion))
	}
	return rev, nil
}
