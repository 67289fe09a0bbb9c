package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/client"
	"monopod/apiserver/client/why/words"
)

const (
	maxEvents   = 6 // events of an answer
	maxLogLines = 5 // lines of a log in an answer
)

// eventsOf returns the events about an object, the newest last.
func (f *Facts) eventsOf(obj client.Object) (events []*corev1.Event) {
	for _, e := range f.Events {
		if isAbout(e, obj) {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { return lastOf(a).Compare(lastOf(b)) })
	return events
}

// isAbout reports whether an event is about an object. The events of a node have its name for a UID.
func isAbout(e *corev1.Event, obj client.Object) bool {
	at := e.InvolvedObject
	if at.Name != obj.GetName() || at.Namespace != obj.GetNamespace() {
		return false
	}
	_, node := obj.(*corev1.Node)
	return at.UID == obj.GetUID() || node && at.Kind == "Node"
}

// warnings returns the events of type Warning about an object, the newest last.
func (f *Facts) warnings(obj client.Object) (events []*corev1.Event) {
	for _, e := range f.eventsOf(obj) {
		if e.Type == corev1.EventTypeWarning {
			events = append(events, e)
		}
	}
	return events
}

// last returns the newest event about an object with one of the reasons, whose message contains text; nil if there
// is none.
func (f *Facts) last(obj client.Object, text string, reasons ...string) *corev1.Event {
	events := f.eventsOf(obj)
	for _, e := range slices.Backward(events) {
		if slices.Contains(reasons, e.Reason) && strings.Contains(e.Message, text) {
			return e
		}
	}
	return nil
}

// lastOf is the time at which an event last happened.
func lastOf(e *corev1.Event) time.Time {
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

func (f *Facts) eventLine(e *corev1.Event) string {
	times := max(e.Count, 1)
	if e.Series != nil {
		times = e.Series.Count
	}
	repeated := ""
	if times > 1 {
		repeated = fmt.Sprintf(", %d times", times)
	}
	return fmt.Sprintf("event %s (%s ago%s): %s", e.Reason, words.Ago(f.Now.Sub(lastOf(e))), repeated, words.Clip(e.Message))
}

// eventLines are the newest events, as evidence.
func (f *Facts) eventLines(events []*corev1.Event) (lines []string) {
	for _, e := range events[max(0, len(events)-maxEvents):] {
		lines = append(lines, f.eventLine(e))
	}
	return lines
}

// logLines are the last lines of a container's log that are not empty.
func (f *Facts) logLines(pod *corev1.Pod, container string) (lines []string) {
	for line := range strings.Lines(f.Logs[LogKey(pod, container)]) {
		if line = strings.TrimSpace(words.Plain(line)); line != "" {
			lines = append(lines, words.Clip(line))
		}
	}
	return lines[max(0, len(lines)-maxLogLines):]
}
