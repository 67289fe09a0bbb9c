package registry

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/record"
)

const (
	// onlyStoredReason and eventComponent are the reason and the source of Events about objects on which nothing acts.
	onlyStoredReason = "OnlyStored"
	eventComponent   = "monopod"
	// maxEventBase is the maximum length of an Event's name without a dot and a UID.
	maxEventBase = 253 - 33
)

// warnInert tells the client that created obj that the kind's controller is off, by a warning and an Event. Objects
// that this process creates get neither.
func (r *Registry) warnInert(ctx context.Context, res *Resource, obj Object) {
	if res.Controller == "" || r.off == nil || !r.off(res.Controller) || ctx.Value(warnKey{}) == nil {
		return
	}
	why := cmp.Or(res.Off, fmt.Sprintf("the controller %q is switched off by --controllers", res.Controller))
	Warn(ctx, fmt.Sprintf("%s %q is only stored: %s", res.Kind, obj.GetName(), why))
	if isDryRun(ctx) {
		return
	}
	object, now := record.ReferenceTo(obj), r.now()
	name := object.Name[:min(len(object.Name), maxEventBase)] + "." + strings.ReplaceAll(string(object.UID), "-", "")
	// A context of its own: the permissions and the deadline of the client apply to obj, not to the Event.
	_, err := r.Create(context.Background(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: cmp.Or(object.Namespace, metav1.NamespaceDefault), Name: name},
		InvolvedObject: object, Type: corev1.EventTypeWarning, Reason: onlyStoredReason, Message: "Only stored: " + why,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: eventComponent}, ReportingController: eventComponent,
	})
	if err != nil {
		r.log.Warn("failed to write an event", zap.String("kind", res.Kind), zap.String("namespace", obj.GetNamespace()),
			zap.String("name", obj.GetName()), zap.Error(err))
	}
}
