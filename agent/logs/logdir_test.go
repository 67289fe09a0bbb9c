package logs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host"
	"monopod/agent/logs"
	"monopod/agent/podapi/status"
)

func pod(name string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name[:1]+"-uid")
	return p
}

// written creates a folder with the logs of one container of each pod.
func written(t *testing.T, c *status.Container, pods ...*corev1.Pod) (*logs.Dir, string) {
	t.Helper()
	root := t.TempDir()
	d := logs.New(root, zap.NewNop())
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		path := d.Path(p, c)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{path, path + ".20260101-000000.gz"} {
			if err := os.WriteFile(file, []byte(p.Name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d.Link(p, c)
	}
	return d, root
}

func TestLinksShowLogs(t *testing.T) {
	t.Parallel()
	c := &status.Container{Name: "c", ID: strings.Repeat("0", 64)}
	long := pod(strings.Repeat("x", 200))
	d, root := written(t, c, pod("a"), long)
	links := filepath.Join(root, "containers")
	for _, name := range host.Names(links) {
		if text, err := os.ReadFile(filepath.Join(links, name)); err != nil || !strings.HasPrefix(name, string(text)[:1]) {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	d.Remove(pod("a"), c)
	d.Unlink(long, c)
	if left := host.Names(links); len(left) > 0 {
		t.Errorf("links left: %v", left)
	}
	if left := host.Names(filepath.Join(d.Pod(pod("a")), "c")); len(left) > 0 {
		t.Errorf("logs left: %v", left)
	}
	if left := host.Names(filepath.Join(d.Pod(long), "c")); len(left) != 2 {
		t.Errorf("logs of the other pod: %v", left)
	}
}

func TestSweepKeepsLinksOfExistingLogs(t *testing.T) {
	t.Parallel()
	c := &status.Container{Name: "c", ID: "1"}
	d, root := written(t, c, pod("a"), pod("gone"))
	if folders, links := d.Sweep(func(uid types.UID) bool { return uid == "a-uid" }); folders != 1 || links != 1 {
		t.Errorf("removed %d folders and %d links, want one of each", folders, links)
	}
	for _, dir := range []string{"pods", "containers"} {
		if left := host.Names(filepath.Join(root, dir)); len(left) != 1 || !strings.Contains(left[0], "a") {
			t.Errorf("%s: %v", dir, left)
		}
	}
}
