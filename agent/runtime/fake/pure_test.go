package fake

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"
)

func TestMergeEnv(t *testing.T) {
	t.Parallel()
	got := mergeEnv([]string{"PATH=/", "A=1"}, []string{"HOSTNAME=x"}, []string{"A=2", "B=", "A=3"})
	if diff := cmp.Diff([]string{"PATH=/", "A=3", "HOSTNAME=x", "B="}, got); diff != "" {
		t.Error(diff)
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	ours := &image{config: v1.ImageConfig{Entrypoint: []string{"/web"}, Cmd: []string{"serve"}}}
	pretended := &image{pretended: true, config: v1.ImageConfig{Entrypoint: []string{"/web"}}}
	for _, tc := range []struct {
		name          string
		image         *image
		command, args string
		want          string // empty: refused
	}{
		{"image's own", ours, "", "", "/web serve"},
		{"arguments replace the image's", ours, "", "echo hi", "/web echo hi"},
		{"command replaces all", ours, "/web env", "", "/web env"},
		{"command and arguments", ours, "/web", "exit 3", "/web exit 3"},
		{"unknown program", ours, "nginx", "-g x", ""},
		{"misuse is the program's affair", ours, "", "exit", "/web exit"},
		{"pretended", pretended, "", "", "/web"},
		{"pretended, flags of ours", pretended, "", "-stop-after 3s", "/web -stop-after 3s"},
		{"pretended, command of ours", pretended, "sleep 5", "", "sleep 5"},
		{"pretended, kubectl run -- sleep 5", pretended, "", "sleep 5", "/web sleep 5"},
		{"pretended, unknown command", pretended, "sh -c", "true", "/web"},
		{"pretended, unknown arguments", pretended, "", "--port 80", "/web"},
	} {
		c := &container{image: tc.image, config: &cri.ContainerConfig{Command: strings.Fields(tc.command), Args: strings.Fields(tc.args)}}
		got, err := c.args()
		if strings.Join(got, " ") != tc.want || (err != nil) != (tc.want == "") {
			t.Errorf("%s: %q, %v, want %q", tc.name, got, err, tc.want)
		}
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	f := newFiles(&cri.ContainerConfig{}, []mount{
		{Mount: &cri.Mount{ContainerPath: "/data/", HostPath: "/host/data"}},
		{Mount: &cri.Mount{ContainerPath: "/data/inner", HostPath: "/host/inner", Readonly: true}},
		{Mount: &cri.Mount{ContainerPath: "/etc/hosts", HostPath: "/host/hosts"}},
	}, "data")
	for name, want := range map[string]string{
		"/data":           "/host/data",
		"/data/a/b":       "/host/data/a/b",
		"a":               "/host/data/a",
		"../etc/hosts":    "/host/hosts",
		"/data/inner/c":   "/host/inner/c",
		"/data/innermost": "/host/data/innermost",
		"/database":       "",
		"/etc/hosts2":     "",
	} {
		host := ""
		if at, mounted := f.locate(f.absolute(name)); mounted {
			host = at.host()
		}
		if host != want {
			t.Errorf("%s is at %q, want %q", name, host, want)
		}
	}
}

func TestReadonlyRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFiles(&cri.ContainerConfig{
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{ReadonlyRootfs: true}},
	}, []mount{{Mount: &cri.Mount{ContainerPath: "/data", HostPath: dir}}}, "/")
	if err := f.WriteFile("/tmp/x", nil); err == nil || err.Error() != "open /tmp/x: read-only file system" {
		t.Errorf("outside the mount: %v", err)
	}
	if err := f.WriteFile("/data/x", []byte("y")); err != nil {
		t.Errorf("in the mount: %v", err)
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 60, time.UTC)
	file := filepath.Join(t.TempDir(), "log")
	l, err := openLog(file, testingclock.NewFakeClock(at))
	if err != nil {
		t.Fatal(err)
	}
	out, errs := l.stream("stdout"), l.stream("stderr")
	out.Write([]byte("one\ntw"))
	errs.Write([]byte("oops\n"))
	out.Write([]byte("o\n\nlast"))
	out.Close()
	errs.Close()
	l.close()

	const stamp = "2026-01-02T03:04:05.000000060Z "
	want := stamp + "stdout F one\n" + stamp + "stderr F oops\n" + stamp + "stdout F two\n" + stamp + "stdout F \n" + stamp + "stdout P last\n"
	if data, err := os.ReadFile(file); err != nil || string(data) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(data)))
	}
}
