package stats_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"monopod/agent/stats"
)

// The history has a point for each of the last sixty minutes.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _ := source(t, &runtime{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Record(ctx)
		}()
		points := func() (out []stats.Point) {
			t.Helper()
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/stats/history", nil))
			if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Body.String()[0] != '[' {
				t.Fatalf("%s: %v", w.Body, err)
			}
			return out
		}
		if got := points(); len(got) != 0 {
			t.Errorf("%d points at the start, want none", len(got))
		}
		for minutes, want := range map[time.Duration]int{90: 60} {
			time.Sleep(minutes*time.Minute + time.Second)
			got := points()
			if len(got) != want {
				t.Fatalf("%d points after %d minutes", len(got), minutes)
			}
			for i, p := range got {
				if p.Memory == 0 || p.Disk == 0 || p.CPU < 0 || i > 0 && p.Time.Sub(got[i-1].Time) != time.Minute {
					t.Errorf("point %d: %+v", i, p)
				}
			}
			if age := time.Since(got[want-1].Time); age > time.Minute {
				t.Errorf("the newest point is %v old", age)
			}
		}
		stop()
		<-ended
	})
}
