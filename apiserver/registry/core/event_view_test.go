package core_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/core"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/kindtest"
)

func resourceOf(t *testing.T, name string, group string) kind.Resource {
	t.Helper()
	for _, r := range core.Resources() {
		if r.Kind == name && r.GVR.Group == group {
			return r
		}
	}
	t.Fatalf("no kind %s", name)
	return kind.Resource{}
}

func fullEvent() *eventsv1.Event {
	at := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	micro := metav1.NewMicroTime(at.Time)
	return &eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "default", Labels: map[string]string{"a": "b"}},
		EventTime:  micro, Series: &eventsv1.EventSeries{Count: 2, LastObservedTime: micro},
		ReportingController: "c", ReportingInstance: "i", Action: "act", Reason: "why",
		Regarding: corev1.ObjectReference{Kind: "Pod", Name: "p"}, Related: &corev1.ObjectReference{Kind: "Node", Name: "n"},
		Note: "note", Type: "Normal", DeprecatedSource: corev1.EventSource{Component: "sc", Host: "sh"},
		DeprecatedFirstTimestamp: at, DeprecatedLastTimestamp: at, DeprecatedCount: 3,
	}
}

// All fields survive the conversion to v1 and back, and the objects share no memory.
func TestEventsRoundTrip(t *testing.T) {
	t.Parallel()
	view := resourceOf(t, "Event", "events.k8s.io").View
	if view.Of != client.Events {
		t.Errorf("a view of %v, want Events", view.Of)
	}
	full := fullEvent()
	for i, v := 0, reflect.ValueOf(*full); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Fatalf("the test leaves %s out", v.Type().Field(i).Name)
		}
	}
	stored := view.Store(full).(*corev1.Event)
	if stored.Message != "note" || stored.InvolvedObject.Name != "p" || stored.Source.Host != "sh" || stored.Count != 3 ||
		stored.Series.Count != 2 {
		t.Errorf("stored %+v", stored)
	}
	if diff := cmp.Diff(full, view.Show(stored)); diff != "" {
		t.Error(diff)
	}
	stored.Labels["a"], stored.Related.Name, stored.Series.Count = "c", "other", 9
	if diff := cmp.Diff(fullEvent(), full); diff != "" {
		t.Errorf("the client's object changed: %s", diff)
	}
}

func TestNewEventColumns(t *testing.T) {
	t.Parallel()
	newer, older := resourceOf(t, "Event", "events.k8s.io"), resourceOf(t, "Event", "")
	ev := fullEvent()
	if diff := cmp.Diff(kindtest.Row(t, older.Columns, newer.View.Store(ev)),
		kindtest.Row(t, newer.Columns, ev)); diff != "" {
		t.Error(diff)
	}
}

func TestNewEventFields(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "Event", "events.k8s.io")
	got := r.FieldsOf(fullEvent())
	for name, want := range map[string]string{"regarding.kind": "Pod", "regarding.name": "p", "reportingController": "c",
		"reason": "why", "type": "Normal", "metadata.name": "e"} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if got.Has("involvedObject.kind") {
		t.Error("the fields contain one of the older version")
	}
}

func TestNewEventCreation(t *testing.T) {
	t.Parallel()
	const good = `metadata: {namespace: default}, eventTime: "2026-01-01T00:00:00.000000Z", reportingController: c, ` +
		`reportingInstance: i, action: a, reason: r, type: Normal`
	long := strings.Repeat("x", 129)
	for text, want := range map[string]string{
		good: "",
		`metadata: {namespace: default}, type: Normal`:        "eventTime: Required value",
		strings.Replace(good, "type: Normal", "type: Odd", 1): "type: Invalid value",
		strings.Replace(good, "reportingController: c, ", "",
			1): "reportingController: Required value\nreportingController: Invalid value\nreportingController: Invalid value",
		strings.Replace(good, "Instance: i", "Instance: "+long, 1):         "reportingInstance: Invalid value",
		strings.Replace(good, "action: a", "action: "+long, 1):             "action: Invalid value",
		strings.Replace(good, "reason: r, ", "", 1):                        "reason: Required value",
		strings.Replace(good, "namespace: default", "namespace: other", 1): "involvedObject.namespace: Invalid value",
		good + `, note: ` + strings.Repeat("x", 1025):                      "message: Invalid value",
		good + `, series: {count: 1}`:                                      "series.count: Invalid value\nseries.lastObservedTime: Required value",
		good + `, deprecatedCount: 1, deprecatedSource: {component: a}, deprecatedFirstTimestamp: "2026-01-01T00:00:00Z", ` +
			`deprecatedLastTimestamp: "2026-01-01T00:00:00Z"`: "firstTimestamp: Invalid value\nlastTimestamp: Invalid value\n" +
			"count: Invalid value\nsource: Invalid value",
	} {
		r := resourceOf(t, "Event", "events.k8s.io")
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, "{"+text+"}"), nil, ""), want)
	}
}

func TestNewEventUpdate(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "Event", "events.k8s.io")
	series := fullEvent()
	series.Series.Count = 7
	series.EventTime.Time = series.EventTime.Add(10 * time.Nanosecond)
	series.Labels = nil
	kindtest.WantErrors(t, r.Validate(series, fullEvent(), ""))
	other := fullEvent()
	other.Regarding.Name, other.Reason, other.Note, other.Type, other.Action = "x", "x", "x", "Warning", "x"
	other.EventTime.Time = other.EventTime.Add(time.Second)
	other.Related, other.ReportingController, other.ReportingInstance = nil, "x", "x"
	other.DeprecatedCount, other.DeprecatedSource.Host = 4, "x"
	kindtest.WantErrors(t, r.Validate(other, fullEvent(), ""),
		"involvedObject: Invalid value", "reason: Invalid value", "message: Invalid value", "source: Invalid value",
		"count: Invalid value",
		"type: Invalid value", "eventTime: Invalid value", "action: Invalid value", "related: Invalid value",
		"reportingController: Invalid value", "reportingInstance: Invalid value")
}

func TestPodTemplate(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "PodTemplate", "")
	const good = `{metadata: {name: x}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, ` +
		`image: i}, {name: d, image: j}]}}}`
	old := kindtest.Create(t, r, good)
	kindtest.WantErrors(t, kindtest.Validate(r, old, nil, ""))
	if got := kindtest.Headings(r.Columns) + " " + kindtest.Row(t, r.Columns,
		old); got != "Name|Containers|Images|Pod Labels /  x|c,d|i,j|a=b" {
		t.Error(got)
	}
	same := kindtest.Update(t, r, old, good, "")
	other := kindtest.Update(t, r, old, strings.Replace(good, "image: i", "image: k", 1), "")
	if old.GetGeneration() != 1 || same.GetGeneration() != 1 || other.GetGeneration() != 2 {
		t.Errorf("generations %d, %d, %d", old.GetGeneration(), same.GetGeneration(), other.GetGeneration())
	}
	for text, want := range map[string]string{
		`{}`: "template.spec.containers: Required value",
		strings.Replace(good, "a: b", `"a b": c`, 1):      "template.labels: Invalid value",
		strings.Replace(good, "image: i", "image: ''", 1): "template.spec.containers[0].image: Required value",
		strings.Replace(good, "name: d", "name: c", 1):    "template.spec.containers[1].name: Duplicate value",
		strings.Replace(good, "spec: {", "spec: {restartPolicy: Maybe, ",
			1): "template.spec.restartPolicy: Unsupported value",
	} {
		kindtest.WantErrors(t, kindtest.Validate(r, kindtest.Create(t, r, text), nil, ""), want)
	}
}

func TestComponentStatusColumns(t *testing.T) {
	t.Parallel()
	r := resourceOf(t, "ComponentStatus", "")
	for text, want := range map[string]string{
		`{}`: "|Unknown||",
		`{metadata: {name: etcd-0}, conditions: [{type: Healthy, status: "True", message: ok}]}`:  "etcd-0|Healthy|ok|",
		`{metadata: {name: etcd-0}, conditions: [{type: Healthy, status: "False", error: away}]}`: "etcd-0|Unhealthy||away",
	} {
		obj := r.New()
		if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
			t.Fatal(err)
		}
		if got := kindtest.Row(t, r.Columns, obj); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
