package cronjob

import (
	"fmt"
	"testing"
	"time"
	_ "time/tzdata"

	"monopod/apiserver/kit/batch"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	when, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestDue(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		schedule, zone, since, now, want string
	}{
		"none yet": {"0 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T00:59:59Z",
			"0 none, next 2026-01-01T01:00:00Z"},
		"on time": {"0 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z",
			"1 2026-01-01T01:00:00Z, next 2026-01-01T02:00:00Z"},
		"the last of several": {"0 * * * *", "", "2026-01-01T00:00:00Z", "2026-01-01T05:30:00Z",
			"5 2026-01-01T05:00:00Z, next 2026-01-01T06:00:00Z"},
		"the last of many": {"* * * * *", "", "1970-01-01T00:00:00Z", "2026-01-01T05:30:30Z",
			"101 2026-01-01T05:30:00Z, next 2026-01-01T05:31:00Z"},
		"many, long ago": {"* * * 1 *", "", "1970-01-01T00:00:00Z", "2026-12-24T00:00:00Z",
			"101 2026-01-31T23:59:00Z, next 2027-01-01T00:00:00Z"},
		"never": {"0 0 30 2 *", "", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "0 none, next none"},
		"the clock went back": {"0 * * * *", "", "2026-01-01T03:00:00Z", "2026-01-01T01:30:00Z",
			"0 none, next 2026-01-01T04:00:00Z"},
		"in a zone": {"30 2 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", "2026-01-01T12:00:00Z",
			"1 2026-01-01T01:30:00Z, next 2026-01-02T01:30:00Z"},
		"an hour that the zone skips": {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z",
			"0 none, next 2026-03-30T00:30:00Z"},
		"every": {"@every 90s", "", "2026-01-01T00:00:10Z", "2026-01-01T00:05:00Z",
			"3 2026-01-01T00:04:40Z, next 2026-01-01T00:06:10Z"},
		"every, clock back": {"@every 90s", "", "2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z",
			"0 none, next 2026-01-01T00:01:40Z"},
		"every, many": {"@every 1s", "", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z",
			"101 2026-01-02T00:00:00Z, next 2026-01-02T00:00:01Z"},
		"a macro": {"@daily", "", "2026-01-01T00:00:00Z", "2026-01-02T03:00:00Z",
			"1 2026-01-02T00:00:00Z, next 2026-01-03T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.zone == "" {
				c.zone = "Etc/UTC"
			}
			cj := hourly(onSchedule(c.schedule))
			cj.Spec.TimeZone = &c.zone
			s, err := batch.ScheduleOf(cj)
			if err != nil {
				t.Fatal(err)
			}
			last, next, count := due(s, at(t, c.since), at(t, c.now))
			text := func(when time.Time) string {
				if when.IsZero() {
					return "none"
				}
				return when.UTC().Format(time.RFC3339)
			}
			if got := fmt.Sprintf("%d %s, next %s", count, text(last), text(next)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
