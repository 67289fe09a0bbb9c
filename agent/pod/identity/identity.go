// Package identity contains the constant properties of a pod and the functions that every part of its worker needs. The
// specification, which may change, is an argument of each call.
package identity

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/guard"
)

// Pod is one pod of the node. It is plain data and safe for concurrent use.
type Pod struct {
	UID types.UID
	// Object is the first version of the pod. Only its names are valid for later versions.
	Object *corev1.Pod
	// Static means that the pod comes from a file; the API only has its mirror pod.
	Static bool
	// Life ends with the agent. It is the context of calls that changes of the pod must not interrupt.
	Life context.Context
	Log  *zap.Logger
	// Event writes an event about the pod, or about one of its containers.
	Event func(container, eventType, reason, format string, args ...any)
	// Panicked logs, counts and reports a panic in a part of the pod's worker.
	Panicked func(part string, p *guard.Panic)
}

// Warn writes a warning about the pod as a whole.
func (p *Pod) Warn(reason, format string, args ...any) {
	p.Event("", corev1.EventTypeWarning, reason, format, args...)
}

// Call calls f, on any goroutine. It reports a panic in f and returns it as an error.
func (p *Pod) Call(part string, f func() error) error {
	err := guard.Call(f)
	if panicked := (*guard.Panic)(nil); errors.As(err, &panicked) {
		p.Panicked(part, panicked)
	}
	return err
}

// NotFound reports whether a call of the runtime failed because its sandbox or container does not exist.
func NotFound(err error) bool { return err != nil && grpcstatus.Code(err) == codes.NotFound }
