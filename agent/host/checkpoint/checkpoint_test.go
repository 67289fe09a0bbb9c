package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/agent/host/checkpoint"
)

type state struct {
	Policy  string            `json:"policyName"`
	Entries map[string]string `json:"entries,omitempty"`
}

func TestSaveAndLoad(t *testing.T) {
	t.Parallel()
	f := checkpoint.File(filepath.Join(t.TempDir(), "state"))
	var got state
	if found, err := f.Load(&got); found || err != nil {
		t.Fatal(found, err)
	}
	for _, policy := range []string{"static", `a "quoted",\"checksum\":1} one`} {
		if err := f.Save(state{policy, map[string]string{"a": "1"}}); err != nil {
			t.Fatal(err)
		}
		if found, err := f.Load(&got); !found || err != nil || got.Policy != policy || got.Entries["a"] != "1" {
			t.Errorf("found %v, error %v, got %+v", found, err, got)
		}
	}
	text, err := os.ReadFile(string(f))
	if err != nil || !strings.HasPrefix(string(text), `{"policyName":`) ||
		!strings.Contains(string(text), `,"checksum":`) {
		t.Errorf("error %v, file %s", err, text)
	}
	if left, _ := filepath.Glob(string(f) + "?*"); len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

// TestDamagedFile truncates the file at every byte, and changes every byte.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	f := checkpoint.File(filepath.Join(t.TempDir(), "state"))
	if err := f.Save(state{"static", nil}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(string(f))
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, at int, text []byte) {
		if err := os.WriteFile(string(f), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := f.Load(&state{}); !found || !errors.Is(err, checkpoint.ErrDamaged) {
			t.Errorf("%s at %d: found %v, error %v", what, at, found, err)
		}
	}
	for i := range whole {
		try("truncated", i, whole[:i])
		changed := append([]byte(nil), whole...)
		changed[i] ^= 1
		try("changed", i, changed)
	}
}

func TestStartOver(t *testing.T) {
	t.Parallel()
	f := checkpoint.File(filepath.Join(t.TempDir(), "state"))
	for _, text := range []string{"first", "second"} {
		if err := os.WriteFile(string(f), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lost, err := f.StartOver(checkpoint.ErrDamaged, "all is new")
		if err != nil || !errors.Is(lost, checkpoint.ErrDamaged) ||
			!strings.Contains(lost.Error(), string(f)+".damaged, and all is new") {
			t.Errorf("lost %v, error %v", lost, err)
		}
		if got, _ := os.ReadFile(string(f) + ".damaged"); string(got) != text {
			t.Errorf("the .damaged file contains %q, want %q", got, text)
		}
	}
	if found, err := f.Load(&state{}); found || err != nil {
		t.Error(found, err)
	}
	lost, err := f.StartOver(checkpoint.ErrDamaged, "all is new")
	if lost != nil || !errors.Is(err, checkpoint.ErrDamaged) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("StartOver without a file: lost %v, error %v", lost, err)
	}
}
