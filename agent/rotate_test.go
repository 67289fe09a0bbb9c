package agent_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monopod/agent"
	"monopod/agent/logs"
)

func TestLogsAreRotated(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) { c.Logs = logs.Rotation{MaxSize: 2 << 10, MaxFiles: 3, Period: 10 * time.Second} })
		w.create(pod("a", "tick", "0", "100ms"))
		w.until(time.Second, "a", ready)
		w.after(2 * time.Minute)
		dir := filepath.Join("logs/pods", "default_a_"+string(w.get("a").UID), "c")
		files := names(w, dir)
		if len(files) != 3 || !strings.HasSuffix(files[1], ".gz") || strings.HasSuffix(files[2], ".gz") {
			t.Errorf("files: %v", files)
		}
		now := w.logsOf("a", false)
		if lines := strings.Count(now, "\n"); lines < 40 || lines > 100 || !strings.Contains(now, "tick 1199\n") {
			t.Errorf("the log has %d lines: %.60q", lines, now)
		}
		w.delete("a", 0)
		w.until(time.Second, "a", gone)
		w.nothingLeft()
	})
}

// The agent does not rotate the log of a container if the runtime fails to reopen it.
func TestFailedReopenKeepsLog(t *testing.T) {
	inWorld(t, func(w *world) {
		w.restart(func(c *agent.Config) { c.Logs = logs.Rotation{MaxSize: 1 << 10, MaxFiles: 3, Period: 10 * time.Second} })
		w.failing(func(op, _ string) error {
			if op == "ReopenContainerLog" {
				return context.DeadlineExceeded
			}
			return nil
		})
		w.create(pod("a", "tick", "0", "100ms"))
		w.until(time.Second, "a", ready)
		w.after(time.Minute)
		if got := w.logsOf("a", false); !strings.HasPrefix(got, "tick 1\n") || !strings.Contains(got, "tick 599\n") {
			t.Errorf("lines are missing: %.60q", got)
		}
	})
}
