package core

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

// newEventResource returns Event of events.k8s.io/v1: the events of v1 with different field names and stricter
// validation.
func newEventResource() kind.Resource {
	return kind.Resource{
		GVR:        client.NewEvents,
		Kind:       "Event",
		Namespaced: true,
		ShortNames: []string{"ev"},
		View: &kind.View{Of: client.Events, Show: toEventsV1, Store: func(shown kind.Object) kind.Object {
			return toCoreEvent(shown.(*eventsv1.Event).DeepCopy())
		}},
		New:      func() kind.Object { return new(eventsv1.Event) },
		Validate: newEventValidate,
		Fields:   newEventFields,
		Columns: table.Converted(eventColumns(), func(obj store.Object) store.Object {
			return toCoreEvent(obj.(*eventsv1.Event))
		}),
	}
}

func toEventsV1(stored kind.Object) kind.Object {
	ev := stored.(*corev1.Event).DeepCopy()
	out := &eventsv1.Event{
		TypeMeta: ev.TypeMeta, ObjectMeta: ev.ObjectMeta,
		EventTime: ev.EventTime, ReportingController: ev.ReportingController, ReportingInstance: ev.ReportingInstance,
		Action: ev.Action, Reason: ev.Reason, Regarding: ev.InvolvedObject, Related: ev.Related,
		Note: ev.Message, Type: ev.Type,
		DeprecatedSource: ev.Source, DeprecatedFirstTimestamp: ev.FirstTimestamp,
		DeprecatedLastTimestamp: ev.LastTimestamp, DeprecatedCount: ev.Count,
	}
	out.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	if ev.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: ev.Series.Count, LastObservedTime: ev.Series.LastObservedTime}
	}
	return out
}

// toCoreEvent converts an event to v1. The result shares memory with ev.
func toCoreEvent(ev *eventsv1.Event) *corev1.Event {
	out := &corev1.Event{
		TypeMeta: ev.TypeMeta, ObjectMeta: ev.ObjectMeta,
		EventTime: ev.EventTime, ReportingController: ev.ReportingController, ReportingInstance: ev.ReportingInstance,
		Action: ev.Action, Reason: ev.Reason, InvolvedObject: ev.Regarding, Related: ev.Related,
		Message: ev.Note, Type: ev.Type,
		Source: ev.DeprecatedSource, FirstTimestamp: ev.DeprecatedFirstTimestamp,
		LastTimestamp: ev.DeprecatedLastTimestamp, Count: ev.DeprecatedCount,
	}
	out.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	if ev.Series != nil {
		out.Series = &corev1.EventSeries{Count: ev.Series.Count, LastObservedTime: ev.Series.LastObservedTime}
	}
	return out
}

// newEventFields returns the fields of upstream's AddFieldLabelConversionsForEvent.
func newEventFields(obj kind.Object) fields.Set {
	ev := obj.(*eventsv1.Event)
	object := &ev.Regarding
	return fields.Set{
		"regarding.kind":            object.Kind,
		"regarding.namespace":       object.Namespace,
		"regarding.name":            object.Name,
		"regarding.uid":             string(object.UID),
		"regarding.apiVersion":      object.APIVersion,
		"regarding.resourceVersion": object.ResourceVersion,
		"regarding.fieldPath":       object.FieldPath,
		"reason":                    ev.Reason,
		"reportingController":       ev.ReportingController,
		"type":                      ev.Type,
	}
}

// newEventValidate implements upstream's validation of this version. As upstream, most errors name the fields of v1.
func newEventValidate(next, cur kind.Object, _ string) field.ErrorList {
	ev := toCoreEvent(next.(*eventsv1.Event))
	errs := eventValidate(ev, "reportingController")
	if cur == nil {
		errs = append(errs, eventSeries(ev.Series)...)
		return append(errs, newEventCreate(ev)...)
	}
	old := toCoreEvent(cur.(*eventsv1.Event))
	if !equality.Semantic.DeepEqual(ev.Series, old.Series) {
		errs = append(errs, eventSeries(ev.Series)...)
	}
	eventTime := ev.EventTime // compared in microseconds, because some clients send a higher precision
	if eventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		eventTime = old.EventTime
	}
	return slices.Concat(errs, // only the series and the metadata may change
		check.Immutable(field.NewPath("involvedObject"), ev.InvolvedObject, old.InvolvedObject),
		check.Immutable(field.NewPath("reason"), ev.Reason, old.Reason),
		check.Immutable(field.NewPath("message"), ev.Message, old.Message),
		check.Immutable(field.NewPath("source"), ev.Source, old.Source),
		check.Immutable(field.NewPath("firstTimestamp"), ev.FirstTimestamp, old.FirstTimestamp),
		check.Immutable(field.NewPath("lastTimestamp"), ev.LastTimestamp, old.LastTimestamp),
		check.Immutable(field.NewPath("count"), ev.Count, old.Count),
		check.Immutable(field.NewPath("type"), ev.Type, old.Type),
		check.Immutable(field.NewPath("eventTime"), eventTime, old.EventTime),
		check.Immutable(field.NewPath("action"), ev.Action, old.Action),
		check.Immutable(field.NewPath("related"), ev.Related, old.Related),
		check.Immutable(field.NewPath("reportingController"), ev.ReportingController, old.ReportingController),
		check.Immutable(field.NewPath("reportingInstance"), ev.ReportingInstance, old.ReportingInstance))
}

func eventSeries(series *corev1.EventSeries) field.ErrorList {
	if series == nil {
		return nil
	}
	var errs field.ErrorList
	if series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// newEventCreate requires eventTime and a valid type, and rejects the deprecated fields that eventTime and series
// replace.
func newEventCreate(ev *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if ev.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if ev.Type != corev1.EventTypeNormal && ev.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", ev.Type)))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !ev.FirstTimestamp.IsZero()},
		{"lastTimestamp", !ev.LastTimestamp.IsZero()},
		{"count", ev.Count != 0},
		{"source", ev.Source != corev1.EventSource{}},
	} {
		if f.set {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
		}
	}
	return errs
}
