package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"monopod/testdata/harness"
)

// After a few seconds of abuse, the server uses the same resources as before; memory may take minutes to return.
func TestAbuse(t *testing.T) {
	t.Parallel()
	programs := harness.Build(t)
	dir, err := programs.NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	s := harness.NewServer(programs.Monopod(harness.Plain), dir, "--node-name", "node1", "--runtime=fake")
	t.Cleanup(func() {
		s.CleanUp(false)
		os.RemoveAll(dir)
	})
	s.Start()
	if err := s.Ready(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(),
		config{dataDir: dir, duration: 5 * time.Second, settle: 3 * time.Minute, seed: 1, workers: 4, memory: 250e6}, &out)
	if t.Log(out.String()); err != nil {
		t.Error(err)
	}
}
