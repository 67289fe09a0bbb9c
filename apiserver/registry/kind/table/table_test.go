package table

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestSince(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, then := range map[string]time.Time{
		Unknown: {}, "0s": now, "5s": now.Add(-5 * time.Second), "3m5s": now.Add(-185 * time.Second),
		"2d3h": now.Add(-51 * time.Hour), "400d": now.Add(-400 * 24 * time.Hour),
	} {
		if got := Since(then, now); got != want {
			t.Errorf("since %v: %s, want %s", then, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for want, c := range map[string]struct {
		count int
		last  time.Time
	}{"0": {0, now}, "2": {2, time.Time{}}, "3 (10s ago)": {3, now.Add(-10 * time.Second)}} {
		if got := Ago(c.count, c.last, now); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	columns := []Column{
		Name(), Age(),
		Number("N", "", func(c *corev1.ConfigMap) int64 { return int64(len(c.Data)) }),
		Text("Empty", "", func(*corev1.ConfigMap) string { return OrNone("") }).Wide(),
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x",
		CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}, Data: map[string]string{"a": ""}}
	row := Row(columns, obj, now, runtime.RawExtension{Raw: []byte(`{"kind":"PartialObjectMetadata"}`)})
	got, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cells":["x","60s",1,"\u003cnone\u003e"],"object":{"kind":"PartialObjectMetadata"}}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	heads := Definitions(columns)
	if heads[0].Format != "name" || heads[2].Type != "integer" || heads[3].Priority != 1 || heads[0].Priority != 0 {
		t.Errorf("got %+v", heads)
	}
}
