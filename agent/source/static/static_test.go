package static_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/source/static"
	"monopod/testdata/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is a Dir with a new folder.
type folder struct {
	*testing.T
	*static.Dir
}

func newFolder(t *testing.T) folder {
	t.Helper()
	return folder{t, static.New(static.Config{
		Path: t.TempDir(), Node: "Node1", Now: func() time.Time { return time.Unix(0, 0) },
		Complete: func(pod *corev1.Pod) error {
			if pod.Spec.RestartPolicy == "bad" {
				return errors.New("spec.restartPolicy: bad")
			}
			pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
			return nil
		},
	})}
}

func (f folder) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.Path, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// read returns the result of Read as lines: pods by name, problems by file.
func (f folder) read() string {
	f.Helper()
	pods, problems, err := f.Read()
	if err != nil {
		f.Fatal(err)
	}
	var out []string
	for _, p := range pods {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	for _, p := range problems {
		line := fmt.Sprintf("%s: %v", p.File, p.Err)
		if p.Ignored {
			line = "ignored " + line
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

const (
	head = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	good = head + "spec: {containers: [{name: c, image: i}]}\n"
)

func TestOneFile(t *testing.T) {
	t.Parallel()
	of := func(spec string) string { return head + "spec: {containers: [{name: c, image: i}], " + spec + "}" }
	for name, c := range map[string]struct{ text, want string }{
		"yaml": {good, "default/a-node1"},
		"json": {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"x"},"spec":{}}`,
			"x/b-node1"},
		"one of documents": {"# a comment\n---\n" + good + "---\n# the end\n", "default/a-node1"},
		"two documents":    {good + "---\n" + good, "several documents, one object is expected"},
		"empty":            {"", "is empty"},
		"comment":          {"# later", "is empty"},
		"invalid yaml":     {"{", "cannot be read"},
		"scalar":           {"pod", "cannot be read"},
		"wrong type":       {head + "spec: {containers: 3}", "cannot be read"},
		"list": {"apiVersion: v1\nkind: PodList\nitems: []",
			`must hold one Pod of v1, not kind "PodList" of "v1"`},
		"no kind":       {"metadata: {name: a}", `not kind "" of ""`},
		"no name":       {"apiVersion: v1\nkind: Pod\nspec: {}", "metadata.name: Required value"},
		"unknown field": {of("colour: red"), "default/a-node1\nignored a.yaml: unknown field \"spec.colour\""},
		"aliases": {head + "x: &x \"" + strings.Repeat("x", 20_000) + "\"\ny: [" + strings.Repeat("*x, ", 60_000) + "]",
			"aliases expand to more than"},
		"nested": {of("x: " + strings.Repeat("[", 300) + strings.Repeat("]", 300)),
			"must not be nested more than 256 levels deep"},
		"invalid":     {of("restartPolicy: bad"), "spec.restartPolicy: bad"},
		"account":     {of("serviceAccountName: x"), "static pods may not reference serviceaccounts"},
		"pull secret": {of("imagePullSecrets: [{name: x}]"), "static pods may not reference secrets"},
		"claim":       {of("resourceClaims: [{name: x}]"), "static pods may not reference resourceclaims"},
		"configMap":   {of("volumes: [{name: v, configMap: {name: x}}]"), "static pods may not reference configmaps"},
		"secret":      {of("volumes: [{name: v, secret: {secretName: x}}]"), "static pods may not reference secrets"},
		"volume claim": {of("volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]"),
			"static pods may not reference persistentvolumeclaims"},
		"token": {of("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: x}}]}}]"),
			"static pods may not reference serviceaccounts"},
		"hostPath": {of("volumes: [{name: v, hostPath: {path: /}}]"), "default/a-node1"},
		"env": {head + "spec: {initContainers: [{name: c, env: [{name: x, valueFrom: {configMapKeyRef: {name: x, " +
			"key: k}}}]}]}", "static pods may not reference configmaps"},
		"envFrom": {head + "spec: {containers: [{name: c, envFrom: [{secretRef: {name: x}}]}]}",
			"static pods may not reference secrets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFolder(t)
			f.write("a.yaml", c.text)
			if got := f.read(); !strings.Contains(got, c.want) || strings.HasPrefix(c.want, "default/") && got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := f.read(); strings.Contains(got, ": ") {
				t.Errorf("the second Read returned %q", got)
			}
		})
	}
}

func TestFileNames(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	pod := func(name string) string { return strings.Replace(good, "name: a", "name: "+name, 1) }
	for file, name := range map[string]string{
		"a.yaml": "a", "b.yml": "b", "c.json": "c", ".d.yaml": "d", "e.yaml~": "e", ".f.yaml.swp": "f", "g": "g",
		"#h.yaml#": "h",
	} {
		f.write(file, pod(name))
	}
	f.write("target", pod("linked"))
	for _, err := range []error{
		os.Mkdir(filepath.Join(f.Path, "dir.yaml"), 0o700),
		os.Symlink("target", filepath.Join(f.Path, "l.yaml")),
		os.Symlink("nowhere", filepath.Join(f.Path, "m.yaml")),
		syscall.Mkfifo(filepath.Join(f.Path, "n.yaml"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	f.write("o.yaml", strings.Repeat(" ", 10<<20+1))
	want := "default/a-node1\ndefault/b-node1\ndefault/c-node1\ndefault/linked-node1\n" +
		"m.yaml: is a dangling symlink\nn.yaml: is not a regular file\no.yaml: is longer than 10485760 bytes"
	if got := f.read(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if err := os.RemoveAll(f.Path); err != nil {
		t.Fatal(err)
	}
	if got := f.read(); got != "" {
		t.Errorf("Read of a removed folder: %q", got)
	}
}

func TestSameNameTwice(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	steps := []struct {
		file, text string // text "": the file is removed
		want       string
	}{
		{"b.yaml", good, "default/a-node1"},
		{"a.yaml", good, "default/a-node1\na.yaml: pod default/a-node1 is already defined by b.yaml"},
		{"c.yaml", "}", "default/a-node1\nc.yaml: cannot be read"},
		{"b.yaml", "}", "default/a-node1\nb.yaml: cannot be read"}, // the pod keeps running
		{"b.yaml", "", "default/a-node1"},
		{"a.yaml", "", ""},
	}
	for i, s := range steps {
		if s.text != "" {
			f.write(s.file, s.text)
		} else if err := os.Remove(filepath.Join(f.Path, s.file)); err != nil {
			t.Fatal(err)
		}
		if got := f.read(); got != s.want && (s.want == "" || !strings.HasPrefix(got, s.want+": ")) {
			t.Errorf("step %d: got %q, want %q", i, got, s.want)
		}
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	uid := func(name, text string) types.UID {
		f.write(name, text)
		defer os.Remove(filepath.Join(f.Path, name))
		pods, problems, err := f.Read()
		if err != nil || len(pods) != 1 {
			t.Fatal(pods, problems, err)
		}
		return pods[0].UID
	}
	first := uid("a.yaml", good)
	for name, c := range map[string]struct {
		file, text string
		same       bool
	}{
		"read again":  {"a.yaml", good, true},
		"reformatted": {"a.yaml", strings.Replace(good, "{name: a}", "\n  name: a", 1), true},
		"from the API": {"a.yaml", strings.Replace(good, "{name: a}",
			"{name: a, uid: x, resourceVersion: '7', annotations: {kubernetes.io/config.mirror: y}}", 1), true},
		"moved":  {"b.yaml", good, false},
		"edited": {"a.yaml", strings.Replace(good, "image: i", "image: j", 1), false},
		"edited, with UID": {"a.yaml", strings.NewReplacer("image: i", "image: j", "{name: a}", "{name: a, uid: "+
			string(first)+"}").Replace(good), false},
	} {
		if got := uid(c.file, c.text); (got == first) != c.same || len(got) != 32 {
			t.Errorf("%s: UID %s, UID of the first file %s", name, got, first)
		}
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	f.write("a.yaml", good)
	pods, _, err := f.Read()
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	pod := pods[0]
	if pod.Spec.NodeName != "Node1" || *pod.Spec.Priority != 2000001000 || len(pod.Spec.Tolerations) != 1 ||
		pod.Spec.Tolerations[0].Effect != "NoExecute" {
		t.Errorf("pod: %+v", pod.Spec)
	}
	mirror := static.Mirror(pod, "u")
	if uid, ok := static.Mirrored(mirror); !ok || uid != pod.UID {
		t.Errorf("Mirrored returned %q, %v", uid, ok)
	}
	if _, ok := static.Mirrored(pod); ok {
		t.Error("Mirror changed the static pod into a mirror pod")
	}
	if mirror.UID != "" || mirror.Spec.Priority != nil || mirror.OwnerReferences[0].UID != "u" ||
		!*mirror.OwnerReferences[0].Controller {
		t.Errorf("mirror: %+v", mirror)
	}
}

func TestNotify(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"created":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "b.json"), []byte("x"), 0o600) },
		"written":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "a.yaml"), []byte("x"), 0o600) },
		"moved out": func(dir string) error { return os.Rename(filepath.Join(dir, "a.yaml"), filepath.Join(dir, ".a")) },
		"moved in":  func(dir string) error { return os.Rename(filepath.Join(dir, ".b"), filepath.Join(dir, "b.yaml")) },
		"removed":   func(dir string) error { return os.Remove(filepath.Join(dir, "a.yaml")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, file := range []string{"a.yaml", ".b"} {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			changed, stop, err := static.Notify(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			select {
			case <-changed:
			case <-time.After(harness.Bound):
				t.Error("timeout: no notification")
			}
		})
	}
	if _, _, err := static.Notify(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("Notify of a missing folder succeeded")
	}
}

// Failed reports files without a valid pod until they are corrected or removed.
func TestFailed(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	const good = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: i}]}\n"
	for _, step := range []struct {
		do   func()
		want []string // parts of the message, one for each file
	}{
		{func() { f.write("a.yaml", good) }, nil},
		{func() { f.write("b.yaml", "foo: [") }, []string{"b.yaml: cannot be read"}},
		{func() {}, []string{"b.yaml: cannot be read"}},
		{func() { f.write("c.yaml", good) }, []string{"b.yaml: cannot be read",
			"c.yaml: pod default/web-node1 is already defined by a.yaml"}},
		{func() { _ = os.Remove(filepath.Join(f.Path, "a.yaml")) }, []string{"b.yaml: cannot be read"}},
		{func() { f.write("b.yaml", strings.ReplaceAll(good, "web", "other")) }, nil},
	} {
		step.do()
		f.read()
		got := f.Failed()
		if (got == "") != (step.want == nil) || len(step.want) > 0 && strings.Count(got, "; ") != len(step.want)-1 {
			t.Errorf("got %q, want %q", got, step.want)
		}
		for _, part := range step.want {
			if !strings.Contains(got, part) {
				t.Errorf("got %q, want %q", got, part)
			}
		}
	}
}
