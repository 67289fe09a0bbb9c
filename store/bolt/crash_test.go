package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/storetest"
)

var crashRounds = flag.Int("crash.rounds", 25, "how often the program under load is killed")

// crashFile is the environment variable that makes this test binary the program under load.
const crashFile = "MONOPOD_TEST_CRASH_FILE"

const (
	crashWriters = 4
	crashNames   = 12 // of each writer
)

// crashChild writes to the file until it is killed. It prints "start NAME VALUE" before each write, and "done
// NAME REVISION" once it is acknowledged; VALUE "-" is a removal.
func crashChild(path string, out io.Writer) error {
	s, err := bolt.Open(path, storetest.Config())
	if err != nil {
		return err
	}
	var mu sync.Mutex
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format, args...)
	}
	var writers sync.WaitGroup
	for w := range crashWriters {
		writers.Go(func() {
			for {
				crashWrite(s, fmt.Sprintf("w%d-%d", w, rand.IntN(crashNames)), say)
			}
		})
	}
	writers.Wait()
	return nil
}

func crashWrite(s store.Store, name string, say func(string, ...any)) {
	value := "-"
	if rand.IntN(4) > 0 {
		value = fmt.Sprint(rand.Uint64(), strings.Repeat("x", rand.IntN(9000)))
	}
	k := key(name)
	if rand.IntN(10) == 0 {
		k.Resource = "leases" // volatile: uses a revision, does not survive
	} else {
		say("start %s %s\n", name, value)
	}
	e, err := s.Update(context.Background(), k, func(store.Object) (store.Object, error) {
		if value == "-" {
			return nil, nil
		}
		cm := object(name)
		cm.Data["v"] = value
		return cm, nil
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		say("done %s 0\n", name)
	case err != nil:
		say("failed %v\n", err)
	case k.Resource == "leases":
		say("done - %d\n", e.Rev)
	default:
		say("done %s %d\n", name, e.Rev)
	}
}

// model is the expected content of the file.
type model struct {
	acknowledged map[string]string // by name; "-": removed
	underWay     map[string]string
	revision     int64
}

// hear processes the output of the program until it was killed.
func (m *model) hear(t *testing.T, r io.Reader) {
	t.Helper()
	before := m.revision
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // an incomplete line does not count
		}
		f := strings.Fields(line)
		switch f[0] {
		case "start":
			m.underWay[f[1]] = f[2]
		case "done":
			var rev int64
			fmt.Sscan(f[2], &rev)
			if rev != 0 && rev <= before {
				t.Errorf("revision %d was assigned, but %d existed before the start", rev, before)
			}
			m.revision = max(m.revision, rev)
			if value, ok := m.underWay[f[1]]; ok {
				m.acknowledged[f[1]] = value
				delete(m.underWay, f[1])
			}
		default:
			t.Errorf("the program printed %s", line)
		}
	}
}

// compare compares the file with the model, and then continues from the file's content.
func (m *model) compare(t *testing.T, s *bolt.DB) {
	t.Helper()
	if s.Report.Damage != nil || len(s.Report.Problems) > 0 {
		t.Errorf("opened with %+v", s.Report)
	}
	if s.Revision() < m.revision {
		t.Errorf("revision %d after %d", s.Revision(), m.revision)
	}
	entries, _, err := s.List(t.Context(), store.Selector{Resource: "configmaps"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		found[e.Key.Name] = e.Object.(*corev1.ConfigMap).Data["v"]
	}
	for name := range maps.Keys(m.acknowledged) {
		if _, ok := found[name]; !ok {
			found[name] = "-"
		}
	}
	for name, value := range found {
		was, ok := m.acknowledged[name]
		if !ok {
			was = "-"
		}
		if maybe, started := m.underWay[name]; value != was && (!started || value != maybe) {
			t.Errorf("%s is %.30s, was acknowledged as %.30s", name, value, was)
		}
	}
	m.acknowledged, m.underWay = found, map[string]string{}
}

// After a kill at any moment the file contains every acknowledged write, and each other write completely or not
// at all.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	m := &model{acknowledged: map[string]string{}, underWay: map[string]string{}}
	heard := 0
	for round := range *crashRounds {
		before := m.revision
		m.hear(t, killed(t, path))
		if m.revision > before {
			heard++
		}
		s := open(t, path)
		m.compare(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		check(t, path)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if heard < *crashRounds/2 {
		t.Errorf("only %d of %d rounds wrote anything", heard, *crashRounds)
	}
}

// killed runs the program for a moment; it returns its output.
func killed(t *testing.T, path string) io.Reader {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashFile+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	enough := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		buf := bufio.NewReader(out)
		for range 1 + rand.IntN(200) {
			line, _ := buf.ReadString('\n')
			said.WriteString(line)
		}
		close(enough)
		io.Copy(&said, buf)
	})
	<-enough
	time.Sleep(rand.N(2 * time.Millisecond)) // the moment of the crash is what is tested
	cmd.Process.Kill()
	reader.Wait()
	cmd.Wait()
	return strings.NewReader(said.String())
}
