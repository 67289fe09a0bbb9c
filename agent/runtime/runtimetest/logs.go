package runtimetest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// line is the log format of CRI.
var line = regexp.MustCompile(`^(\S+) (stdout|stderr) ([PF]) (.*)$`)

func testLogs(t *testing.T, env Env) {
	p := newPod(t, env)
	host := t.TempDir()
	long := strings.Repeat("0123456789", 4000) // more than the 16 KiB of a record
	if err := os.WriteFile(filepath.Join(host, "text"), []byte("first\n\n"+long+"\nno end"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := p.container("cat", "/in/text")
	config.Mounts = append(config.Mounts, readonly("/in", host))
	before := time.Now()
	p.awaitExit(p.run(config))
	p.awaitLog("no end")

	var text strings.Builder
	for _, entry := range strings.Split(strings.TrimSuffix(p.log(), "\n"), "\n") {
		fields := line.FindStringSubmatch(entry)
		if fields == nil || fields[2] != "stdout" {
			t.Fatalf("not a log line: %q", entry)
		}
		if at, err := time.Parse(time.RFC3339Nano, fields[1]); err != nil || at.Before(before.Add(-time.Second)) ||
			at.After(time.Now()) {
			t.Errorf("invalid time %q: %v", fields[1], err)
		}
		text.WriteString(fields[4])
		if fields[3] == "F" {
			text.WriteString("\n")
		}
	}
	// The runtime may write output without a final newline as a full or as a partial record.
	if got, want := strings.TrimSuffix(text.String(), "\n"), "first\n\n"+long+"\nno end"; got != want {
		t.Errorf("the log is\n%.200q\nwant\n%.200q", got, want)
	}
}

func testLogReopen(t *testing.T, env Env) {
	p := newPod(t, env)
	id := p.run(p.container("tick", "0", "20ms"))
	p.awaitLog("tick 1")
	if err := os.Rename(p.logFile(), p.logFile()+".1"); err != nil {
		t.Fatal(err)
	}
	if err := env.Runtime.ReopenContainerLog(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	p.awaitLog("tick")
	if strings.Contains(p.log(), "tick 1\n") {
		t.Error("the new log file contains old lines")
	}
	if err := env.Runtime.StopContainer(t.Context(), id, 0); err != nil {
		t.Fatal(err)
	}
	if err := env.Runtime.ReopenContainerLog(t.Context(), id); err == nil {
		t.Error("reopening the log of an exited container succeeded")
	}
}
