package userns_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/resources/userns"
)

func first(t *testing.T, r *userns.Ranges, pod types.UID) uint32 {
	t.Helper()
	ns, err := r.Get(pod)
	if err != nil {
		t.Fatal(err)
	}
	if ns.Mode != cri.NamespaceMode_POD || len(ns.Uids) != 1 || len(ns.Gids) != 1 || ns.Uids[0].ContainerId != 0 ||
		ns.Uids[0].Length != userns.Length || ns.Gids[0].HostId != ns.Uids[0].HostId {
		t.Errorf("user namespace: %v", ns)
	}
	return ns.Uids[0].HostId
}

func TestRanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := userns.New(dir, 2)
	a, b := first(t, r, "a"), first(t, r, "b")
	if a != 65536 || b != 131072 {
		t.Errorf("the first two ranges are %d and %d", a, b)
	}
	if again := first(t, userns.New(dir, 2), "b"); again != b {
		t.Errorf("the range after a restart is %d, want %d", again, b)
	}
	if _, err := r.Get("c"); err == nil || !strings.Contains(err.Error(), "could not find an empty slot") {
		t.Errorf("a third range out of two: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if c := first(t, r, "c"); c != a {
		t.Errorf("the range is %d, want %d of the deleted pod", c, a)
	}
}

// TestDamagedRange checks that Get returns an error if a file is damaged, because another pod may use its range.
func TestDamagedRange(t *testing.T) {
	t.Parallel()
	for i, text := range []string{"", "{}", `{"hostId":0,"length":65536}`} {
		dir := filepath.Join(t.TempDir(), fmt.Sprint(i))
		r := userns.New(dir, 2)
		first(t, r, "a")
		file := filepath.Join(dir, "a", "userns")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []types.UID{"a", "b"} {
			if ns, err := r.Get(pod); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%q: %s gets %v, %v", text, pod, ns, err)
			}
		}
	}
}
