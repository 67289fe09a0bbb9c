package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
	"monopod/store"
)

func eventResource() kind.Resource {
	return kind.Resource{
		GVR:        client.Events,
		Kind:       "Event",
		Namespaced: true,
		ShortNames: []string{"ev"},
		New:        func() kind.Object { return new(corev1.Event) },
		Childless:  true,
		Validate: func(next, _ kind.Object, _ string) field.ErrorList {
			return eventValidate(next.(*corev1.Event), "reportingComponent")
		},
		Fields:     eventFields,
		Columns:    eventColumns(),
		Durability: func(_, _ kind.Object) store.Durability { return store.Volatile },
	}
}

func eventFields(obj kind.Object) fields.Set {
	ev := obj.(*corev1.Event)
	object := &ev.InvolvedObject
	return fields.Set{
		"involvedObject.kind":            object.Kind,
		"involvedObject.namespace":       object.Namespace,
		"involvedObject.name":            object.Name,
		"involvedObject.uid":             string(object.UID),
		"involvedObject.apiVersion":      object.APIVersion,
		"involvedObject.resourceVersion": object.ResourceVersion,
		"involvedObject.fieldPath":       object.FieldPath,
		"reason":                         ev.Reason,
		"reportingComponent":             ev.ReportingController,
		"source":                         cmp.Or(ev.Source.Component, ev.ReportingController),
		"type":                           ev.Type,
	}
}

func eventColumns() []table.Column {
	name := table.Name()
	return []table.Column{
		table.Timed("Last Seen", "Time since the last occurrence.", eventLastSeen),
		table.Text("Type", "Normal or Warning.", func(e *corev1.Event) string { return e.Type }),
		table.Text("Reason", "Reason in CamelCase.", func(e *corev1.Event) string { return e.Reason }),
		table.Text("Object", "The object of the event.", func(e *corev1.Event) string {
			if e.InvolvedObject.Name == "" {
				return strings.ToLower(e.InvolvedObject.Kind)
			}
			return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		}),
		table.Text("Subobject", "The part of the object, such as a container.",
			func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }).Wide(),
		table.Text("Source", "The component that reported the event.", eventSource).Wide(),
		table.Text("Message", "What happened.", func(e *corev1.Event) string { return strings.TrimSpace(e.Message) }),
		table.Timed("First Seen", "Time since the first occurrence.", eventFirstSeen).Wide(),
		table.Number("Count", "Number of occurrences.", func(e *corev1.Event) int64 {
			if e.Series != nil {
				return int64(e.Series.Count)
			}
			return int64(max(e.Count, 1))
		}).Wide(),
		name.Wide(),
	}
}

func eventFirstSeen(ev *corev1.Event, now time.Time) string {
	if ev.FirstTimestamp.IsZero() {
		return table.Since(ev.EventTime.Time, now)
	}
	return table.Since(ev.FirstTimestamp.Time, now)
}

func eventLastSeen(ev *corev1.Event, now time.Time) string {
	switch {
	case ev.Series != nil:
		return table.Since(ev.Series.LastObservedTime.Time, now)
	case ev.LastTimestamp.IsZero():
		return eventFirstSeen(ev, now)
	}
	return table.Since(ev.LastTimestamp.Time, now)
}

// eventSource returns "component, host" from the old fields, or else from the new ones.
func eventSource(ev *corev1.Event) string {
	component := cmp.Or(ev.Source.Component, ev.ReportingController)
	host := cmp.Or(ev.Source.Host, ev.ReportingInstance)
	if host == "" {
		return component
	}
	return component + ", " + host
}

// Maximum lengths of texts in events with eventTime, in bytes (upstream: pkg/apis/core/validation/events.go).
const (
	maxEventText = 128
	maxEventNote = 1024
)

// eventValidate implements upstream's rules for events of both versions. reporter is the version's name of the field
// for the reporting controller.
func eventValidate(ev *corev1.Event, reporter string) field.ErrorList {
	// An event is in the namespace of its object, or in default for a cluster-scoped object. An event with eventTime about
	// a cluster-scoped object may also be in kube-system.
	namespace, newer := ev.InvolvedObject.Namespace, !ev.EventTime.IsZero()
	ok := namespace == ev.Namespace || newer
	if namespace == "" {
		ok = ev.Namespace == metav1.NamespaceDefault || newer && ev.Namespace == metav1.NamespaceSystem
	}
	var errs field.ErrorList
	if !ok {
		errs = append(errs, field.Invalid(field.NewPath("involvedObject", "namespace"), namespace,
			"does not match event.namespace"))
	}
	if !newer {
		return errs
	}
	at := field.NewPath(reporter)
	errs = append(errs, check.Required(at, ev.ReportingController)...)
	errs = append(errs, check.Invalid(at, ev.ReportingController, validation.IsQualifiedName(ev.ReportingController))...)
	for _, f := range []struct{ name, value string }{
		{"reportingInstance", ev.ReportingInstance}, {"action", ev.Action}, {"reason", ev.Reason},
	} {
		errs = append(errs, check.Required(field.NewPath(f.name), f.value)...)
		errs = append(errs, eventLength(f.name, f.value, maxEventText)...)
	}
	return append(errs, eventLength("message", ev.Message, maxEventNote)...)
}

func eventLength(name, value string, most int) field.ErrorList {
	if len(value) <= most {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(name), "", fmt.Sprintf("can have at most %d characters", most))}
}
