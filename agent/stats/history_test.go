package stats_test

import (
	"context"
	"encoding/json"
	"math"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"monopod/agent/stats"
)

// The history has a point of the node for each of the last sixty minutes and for each ten minutes before, and of the
// pods for each ten minutes, of one day.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s, _ := source(t, &runtime{began: map[string]time.Time{"a/c": began, "a/d": began, "b/c": began}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Record(ctx)
		}()
		points := func(query string) (out []stats.Point) {
			t.Helper()
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/stats/history"+query, nil))
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Body.String()[0] != '[' {
				t.Fatalf("%s: %v", w.Body, err)
			}
			for i := range out[:max(0, len(out)-1)] {
				if !out[i].Time.Before(out[i+1].Time) {
					t.Errorf("point %d of %q: %v is followed by %v", i, query, out[i].Time, out[i+1].Time)
				}
			}
			return out
		}
		if got := points(""); len(got) != 0 {
			t.Errorf("%d points at the start, want none", len(got))
		}
		for _, at := range []struct {
			after      time.Duration
			node, pods int
		}{{90 * time.Minute, 60 + 3, 9}, {23 * time.Hour, 60 + 138, 144}} {
			time.Sleep(at.after + time.Second)
			got := points("")
			if len(got) != at.node {
				t.Fatalf("%d points of the node after %v, want %d", len(got), at.after, at.node)
			}
			for i, p := range got {
				if p.Memory == 0 || p.Disk == 0 || p.CPU < 0 || p.Received < 0 || p.Sent < 0 {
					t.Errorf("point %d: %+v", i, p)
				}
			}
			if age := time.Since(got[at.node-1].Time); age > time.Minute {
				t.Errorf("the newest point is %v old", age)
			}
			for query, cores := range map[string]float64{"?pod=a": 1, "?pod=b": 0.5, "?pod=a&pod=b": 1.5,
				"?namespace=default": 1.5} {
				got := points(query)
				if len(got) != at.pods {
					t.Fatalf("%d points of %s after %v, want %d", len(got), query, at.after, at.pods)
				}
				for _, p := range got {
					if math.Abs(p.CPU-cores) > 0.001 || p.Memory == 0 {
						t.Errorf("%s: %+v, want %v cores", query, p, cores)
					}
				}
			}
			if got := points("?namespace=other"); len(got) != 0 {
				t.Errorf("%d points of an empty namespace", len(got))
			}
		}
		stop()
		<-ended
	})
}
