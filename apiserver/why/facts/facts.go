// Package facts reads what explains the state of an object: the object with its Events, its pods, the objects that it
// refers to, and the last lines of the logs of containers that failed. Collect reads these Facts; their methods read
// nothing.
package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
	"monopod/apiserver/kit/words"
)

// Facts contain an object and what may explain its state. They are immutable.
type Facts struct {
	Now    time.Time
	Object client.Object
	Events []*corev1.Event   // of Object, and of Pods and Others
	Pods   []*corev1.Pod     // that Object owns, selects or uses
	Others []client.Object   // owners, owned objects, and those that Object or a pod refers to
	Absent []client.Ref      // objects to which Object or a pod refers, and which do not exist
	Logs   map[string]string // last lines of logs, by LogKey
	Closed []string          // ports of pods that refuse connections, as PortKey returns them
	Hidden []string          // Forbidden errors
	Tunnel nodetunnel.State  // of Object, if it is a Node
}

// LogKey returns the key of a container in Facts.Logs.
func LogKey(pod *corev1.Pod, container string) string { return pod.Name + "/" + container }

// PortKey returns the string in Facts.Closed for a port of a pod.
func PortKey(pod *corev1.Pod, port int32) string { return fmt.Sprintf("%s:%d", pod.Name, port) }

// Lacks reports whether an object is known not to exist.
func (f *Facts) Lacks(resource schema.GroupVersionResource, namespace, name string) bool {
	return slices.Contains(f.Absent, client.Ref{Resource: resource, Namespace: namespace, Name: name})
}

// Related returns the first object of a type among Others with this namespace and name, or the zero value.
func Related[T client.Object](f *Facts, namespace, name string) (found T) {
	for _, o := range f.Others {
		if t, ok := o.(T); ok && t.GetNamespace() == namespace && t.GetName() == name {
			return t
		}
	}
	return found
}

// Every returns the objects of a type among Others.
func Every[T client.Object](f *Facts) (all []T) {
	for _, o := range f.Others {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

// Limits of an answer.
const (
	MaxEvents   = 6 // also of pods, ports and labels that are listed as evidence
	maxLogLines = 5
)

// EventsOf returns the events about an object, the newest last.
func (f *Facts) EventsOf(obj client.Object) (events []*corev1.Event) {
	for _, e := range f.Events {
		if isAbout(e, obj) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { return LastOf(a).Compare(LastOf(b)) })
	return events
}

// isAbout reports whether an Event is about an object. Events about a Node contain its name instead of its UID.
func isAbout(e *corev1.Event, obj client.Object) bool {
	at := e.InvolvedObject
	if at.Name != obj.GetName() || at.Namespace != obj.GetNamespace() {
		return false
	}
	_, node := obj.(*corev1.Node)
	return at.UID == obj.GetUID() || node && at.Kind == "Node"
}

// Warnings returns the events of type Warning about an object, the newest last.
func (f *Facts) Warnings(obj client.Object) (events []*corev1.Event) {
	for _, e := range f.EventsOf(obj) {
		if e.Type == corev1.EventTypeWarning {
			events = append(events, e)
		}
	}
	return events
}

// Last returns the newest event about an object with one of the reasons, whose message contains text; nil if there
// is none.
func (f *Facts) Last(obj client.Object, text string, reasons ...string) *corev1.Event {
	events := f.EventsOf(obj)
	for _, e := range slices.Backward(events) {
		if slices.Contains(reasons, e.Reason) && strings.Contains(e.Message, text) {
			return e
		}
	}
	return nil
}

// LastOf returns the time at which an event last happened.
func LastOf(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// EventLine formats an event: its reason, its age, its count and its message.
func (f *Facts) EventLine(e *corev1.Event) string {
	times := max(e.Count, 1)
	if e.Series != nil {
		times = e.Series.Count
	}
	repeated := ""
	if times > 1 {
		repeated = fmt.Sprintf(", %d times", times)
	}
	return fmt.Sprintf("event %s (%s ago%s): %s", e.Reason, words.Ago(f.Now.Sub(LastOf(e))), repeated,
		words.Clip(e.Message))
}

// EventLines returns the newest events, as evidence.
func (f *Facts) EventLines(events []*corev1.Event) (lines []string) {
	for _, e := range events[max(0, len(events)-MaxEvents):] {
		lines = append(lines, f.EventLine(e))
	}
	return lines
}

// LogLines returns the last lines of a container's log, without empty lines.
func (f *Facts) LogLines(pod *corev1.Pod, container string) (lines []string) {
	for line := range strings.Lines(f.Logs[LogKey(pod, container)]) {
		if line = strings.TrimSpace(words.Plain(line)); line != "" {
			lines = append(lines, words.Clip(line))
		}
	}
	return lines[max(0, len(lines)-maxLogLines):]
}
