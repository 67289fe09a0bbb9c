package volume_test

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/storage/volume"
)

func TestHostPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/file", "")
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	block := unix.Mknod(dir+"/block", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))) == nil
	if !block {
		t.Log("skipped: cannot create a block device")
	}
	const failed = "hostPath type check failed: "
	for _, c := range []struct {
		kind corev1.HostPathType
		path string
		err  string
	}{
		{corev1.HostPathUnset, "/nowhere", ""},
		{corev1.HostPathUnset, dir + "/file", ""},
		{corev1.HostPathDirectory, dir, ""},
		{corev1.HostPathDirectory, dir + "/file", failed + dir + "/file is not a directory"},
		{corev1.HostPathDirectory, dir + "/none", failed + dir + "/none is not a directory"},
		{corev1.HostPathDirectoryOrCreate, dir, ""},
		{corev1.HostPathDirectoryOrCreate, dir + "/new/deep", ""},
		{corev1.HostPathDirectoryOrCreate, dir + "/file", failed + dir + "/file is not a directory"},
		{corev1.HostPathFile, dir + "/file", ""},
		{corev1.HostPathFile, dir, failed + dir + " is not a file"},
		{corev1.HostPathFile, dir + "/none", failed + dir + "/none is not a file"},
		{corev1.HostPathFileOrCreate, dir + "/file", ""},
		{corev1.HostPathFileOrCreate, dir + "/made", ""},
		{corev1.HostPathFileOrCreate, dir + "/no/parent", "stat " + dir + "/no: no such file or directory"},
		{corev1.HostPathFileOrCreate, dir, failed + dir + " is not a file"},
		{corev1.HostPathSocket, dir + "/socket", ""},
		{corev1.HostPathSocket, dir, failed + dir + " is not a socket file"},
		{corev1.HostPathSocket, dir + "/none", failed + dir + "/none is not a socket file"},
		{corev1.HostPathCharDev, "/dev/null", ""},
		{corev1.HostPathCharDev, dir + "/file", failed + dir + "/file is not a character device"},
		{corev1.HostPathBlockDev, "/dev/null", failed + "/dev/null is not a block device"},
		{corev1.HostPathBlockDev, dir + "/block", ""},
		{corev1.HostPathCharDev, dir + "/block", failed + dir + "/block is not a character device"},
	} {
		if c.path == dir+"/block" && !block {
			continue
		}
		set := volume.Set{Dir: t.TempDir()}
		facts := podWith(
			corev1.Volume{Name: "h",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: c.path, Type: &c.kind}}})
		paths, err := set.Prepare(t.Context(), withGroup(facts, new(int64(4711)))) // hostPath volumes ignore the fsGroup
		if c.err == "" && (err != nil || paths["h"] != c.path) ||
			c.err != "" && (err == nil || err.Error() != `MountVolume.SetUp failed for volume "h" : `+c.err) {
			t.Errorf("%s %s: %v %v, want %q", c.kind, c.path, paths, err, c.err)
		}
	}
	if group, _ := groupAndMode(t, dir); group == 4711 {
		t.Error("a folder of the host has the fsGroup of the pod")
	}
	for path, want := range map[string]os.FileMode{dir + "/new/deep": os.ModeDir | 0o755, dir + "/made": 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
