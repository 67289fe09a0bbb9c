package fake

import (
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLocate(t *testing.T) {
	t.Parallel()
	f := newFiles(&cri.ContainerConfig{}, []Mount{
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
	}, []Mount{{Mount: &cri.Mount{ContainerPath: "/data", HostPath: dir}}}, "/")
	if err := f.WriteFile("/tmp/x", nil); err == nil || err.Error() != "open /tmp/x: read-only file system" {
		t.Errorf("write outside of the mount: %v", err)
	}
	if err := f.WriteFile("/data/x", []byte("y")); err != nil {
		t.Errorf("write to the mount: %v", err)
	}
}
