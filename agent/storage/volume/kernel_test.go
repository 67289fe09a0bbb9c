package volume_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/storage/volume"
)

// needsMounts skips a test if this process cannot mount.
func needsMounts(t testing.TB) mount.Kernel {
	t.Helper()
	dir := t.TempDir()
	if err := (mount.Kernel{}).Tmpfs(dir, mount.Tmpfs{Mode: 0o700}); err != nil {
		t.Skipf("skipped: cannot mount: %v", err)
	}
	if err := (mount.Kernel{}).Unmount(dir); err != nil {
		t.Fatal(err)
	}
	return mount.Kernel{}
}

// mountsBelow returns the lines of the mount table about dir and paths below it.
func mountsBelow(t testing.TB, dir string) (lines []string) {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if strings.Contains(line, " "+dir) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A container that constantly swaps a folder and a link to a folder outside of the volume never sees files outside of
// the volume (CVE-2017-1002101, CVE-2021-25741).
func TestSubPathRace(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	dir, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/sub/file", "outside")
	write(t, dir+"/x/sub/file", "inside")
	if err := os.Symlink(outside, dir+"/y"); err != nil {
		t.Fatal(err)
	}
	stop, swapped := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			select {
			case <-stop:
				swapped <- n
				return
			default:
			}
			if unix.Renameat2(unix.AT_FDCWD, dir+"/x", unix.AT_FDCWD, dir+"/y", unix.RENAME_EXCHANGE) == nil {
				n++
			}
		}
	}()
	set := volume.Set{Dir: t.TempDir(), Mounter: m}
	shown, refused := 0, 0
	for i := 0; shown < 1000 && i < 1000000; i++ {
		sub := []string{"x/sub/file", "x/sub"}[i%2]
		c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: sub}}}
		got, err := set.Mounts(&corev1.Pod{}, c, map[string]string{"v": dir}, nil, volume.Features{})
		if err != nil {
			refused++
			continue
		}
		path := got[0].HostPath
		if i%2 == 1 {
			path += "/file"
		}
		data, err := os.ReadFile(path) // like the runtime, a moment later
		if err != nil || string(data) != "inside" {
			t.Fatalf("round %d: the container sees %q, %v", i, data, err)
		}
		shown++
	}
	close(stop)
	if n := <-swapped; shown < 1000 || refused < 100 || n < 1000 {
		t.Errorf("too few races: mounted %d times, rejected %d times, swapped %d times", shown, refused, n)
	}
	if err := set.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, set.Dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if read(t, outside+"/sub/file") != "outside" {
		t.Error("a file outside of the volume changed")
	}
}

func TestSubPath(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/file", "one")
	write(t, dir+"/real/file", "linked")
	if err := os.Symlink("real", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	set := volume.Set{Dir: t.TempDir(), Mounter: m}
	prepare := func() []string {
		t.Helper()
		c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{
			{Name: "v", MountPath: "/a", SubPath: "file"}, {Name: "v", MountPath: "/b", SubPath: "new/deep"},
			{Name: "v", MountPath: "/c", SubPath: "link/file"},
		}}
		got, err := set.Mounts(&corev1.Pod{}, c, map[string]string{"v": dir}, nil, volume.Features{})
		if err != nil {
			t.Fatal(err)
		}
		return []string{got[0].HostPath, got[1].HostPath, got[2].HostPath}
	}
	paths := prepare()
	if paths[0] != filepath.Join(set.Dir, "volume-subpaths/v/c/0") || read(t, paths[0]) != "one" ||
		read(t, paths[2]) != "linked" {
		t.Errorf("%v", paths)
	}
	for _, made := range []string{dir + "/new", dir + "/new/deep", paths[1]} {
		if info, err := os.Stat(made); err != nil || info.Mode() != os.ModeDir|os.ModeSetgid|0o777 {
			t.Errorf("%s: %v, %v", made, info.Mode(), err)
		}
	}
	prepare() // for the next instance of the container
	if left := mountsBelow(t, set.Dir); len(left) != 3 {
		t.Errorf("mounts after the second call: %v, want 3", left)
	}
	// After the replacement of the file, the running container still sees the old file, and the next one the new file.
	write(t, dir+"/next", "two")
	if err := os.Rename(dir+"/next", dir+"/file"); err != nil {
		t.Fatal(err)
	}
	if read(t, paths[0]) != "one" {
		t.Error("the running container sees the new file")
	}
	prepare()
	if read(t, paths[0]) != "two" {
		t.Error("the next container sees the old file")
	}
	// A folder replaces the file.
	if err := errors.Join(os.Remove(dir+"/file"), os.Mkdir(dir+"/file", 0o755)); err != nil {
		t.Fatal(err)
	}
	prepare()
	if info, err := os.Stat(paths[0]); err != nil || !info.IsDir() {
		t.Errorf("the mount of the folder is %v, error %v", info, err)
	}
	// Teardown needs only the folder of the pod, as after a restart.
	if err := (&volume.Set{Dir: set.Dir, Mounter: m}).Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, set.Dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if read(t, dir+"/real/file") != "linked" {
		t.Error("Teardown removed files of the volume")
	}
}

// A subPath of a ConfigMap shows the content at the start of the container.
func TestSubPathOfConfigMap(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]volume.Mounter{"mounted": needsMounts(t), "folders": mount.Folders{}} {
		src := &source{configMap: &corev1.ConfigMap{Data: map[string]string{"a": "one"}}}
		set := volume.Set{Dir: t.TempDir(), Mounter: m, Source: src}
		facts := podWith(configMapVolume())
		paths, err := set.Prepare(t.Context(), facts)
		if err != nil {
			t.Fatal(err)
		}
		mounts := func() string {
			t.Helper()
			c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/a", SubPath: "a"}}}
			got, err := set.Mounts(facts.Pod, c, paths, nil, volume.Features{})
			if err != nil || !got[0].Readonly {
				t.Fatal(name, got, err)
			}
			return read(t, got[0].HostPath)
		}
		path := filepath.Join(set.Dir, "volume-subpaths/v/c/0")
		first := mounts()
		src.configMap = &corev1.ConfigMap{Data: map[string]string{"a": "two"}}
		if _, err := set.Prepare(t.Context(), facts); err != nil {
			t.Fatal(err)
		}
		if first != "one" || read(t, path) != "one" || read(t, paths["v"]+"/a") != "two" {
			t.Errorf("%s: %s, then %s", name, first, read(t, path))
		}
		if again := mounts(); again != "two" {
			t.Errorf("%s: the next container sees %s", name, again)
		}
		if err := set.Teardown(t.Context()); err != nil {
			t.Error(name, err)
		}
	}
}

// Teardown removes nothing through a mount anywhere below the folder of the pod, even if unmounting fails.
func TestRemovalStopsAtMounts(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	precious := t.TempDir()
	write(t, precious+"/data/file", "precious")
	dir := filepath.Join(t.TempDir(), "pod")
	bind := func(from, to string) {
		t.Helper()
		if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
	}
	inside := dir + "/volumes/kubernetes.io~empty-dir/v/made/by/a/container"
	write(t, inside+"/x", "")
	bind(precious, inside)
	bind(precious+"/data/file", mustFile(t, dir+"/volumes/kubernetes.io~empty-dir/v/file"))
	bind(precious, mustDir(t, dir+"/volumes/kubernetes.io~local-volume/pv"))
	bind(precious, dir+"/volumes/kubernetes.io~local-volume/pv") // a second mount
	bind(precious, mustDir(t, dir+"/elsewhere/deep"))
	if err := (&volume.Set{Dir: dir, Mounter: stuck{m}}).Teardown(t.Context()); !errors.Is(err, syscall.EPERM) {
		t.Errorf("Teardown with a failing unmount returned %v", err)
	}
	if len(mountsBelow(t, dir)) != 5 || read(t, precious+"/data/file") != "precious" {
		t.Errorf("mounts after the failure: %v", mountsBelow(t, dir))
	}
	if err := (&volume.Set{Dir: dir, Mounter: mount.Folders{}}).Teardown(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "still mounted") {
		t.Errorf("Teardown of a process that cannot unmount returned %v", err)
	}
	if err := (&volume.Set{Dir: dir, Mounter: m}).Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder still exists: %v", err)
	}
	if read(t, precious+"/data/file") != "precious" {
		t.Error("Teardown removed a file through a mount")
	}
}

// stuck is a mounter whose Unmount fails.
type stuck struct{ mount.Kernel }

func (stuck) Unmount(string) error { return syscall.EPERM }

func mustDir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func mustFile(t *testing.T, path string) string {
	t.Helper()
	write(t, path, "")
	return path
}

// Teardown unmounts a tmpfs even if it is in use.
func TestBusyTmpfs(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	set := volume.Set{Dir: t.TempDir(), Mounter: m}
	facts := podWith(
		corev1.Volume{Name: "m",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(paths["m"] + "/open")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := set.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, set.Dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// RemoveAll removes folders that are nested deeper than the maximum length of a path. A container can create these.
func TestRemovalOfDeepFolders(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pod")
	at, err := unix.Open(mustDir(t, dir), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		if err := unix.Mkdirat(at, "deep", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "deep", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		unix.Close(at)
		if err != nil {
			t.Fatal(err)
		}
		at = next
	}
	unix.Close(at)
	if err := mount.RemoveAll(dir, mount.Folders{}); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) > 0 {
		t.Errorf("folders left: %v, error %v", left, err)
	}
}

// Mounts of a privileged container in a volume are visible on the host. Teardown unmounts them.
func TestShare(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	for _, medium := range []corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory} {
		set := volume.Set{Dir: t.TempDir(), Mounter: m}
		facts := podWith(
			corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}})
		facts.Pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{
			{Name: "v", MountPath: "/v", MountPropagation: new(corev1.MountPropagationBidirectional)},
		}}}
		var dir string
		for range 2 { // the second time as the next agent
			paths, err := set.Prepare(t.Context(), facts)
			if err != nil {
				t.Fatal(err)
			}
			dir = paths["v"]
		}
		lines := mountsBelow(t, set.Dir)
		if len(lines) != 1 || !strings.Contains(lines[0], " shared:") {
			t.Errorf("%q: %v", medium, lines)
		}
		if err := m.Tmpfs(mustDir(t, dir+"/mine"), mount.Tmpfs{Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		if err := set.Teardown(t.Context()); err != nil {
			t.Error(err)
		}
		if left := mountsBelow(t, set.Dir); len(left) > 0 {
			t.Errorf("%q: mounts left: %v", medium, left)
		}
	}
}

// Huge mounts a hugetlbfs with the page size and the size of the volume.
func TestHugePagesAreMounted(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	dir := t.TempDir()
	if err := m.Huge(dir, mount.Tmpfs{Mode: 0o777, Page: 2 << 20, Size: 4 << 20}); err != nil {
		t.Skipf("skipped: this kernel has no huge pages of 2 MiB: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Bsize != 2<<20 || st.Blocks != 2 {
		t.Errorf("statfs %+v, error %v", st, err)
	}
	if err := mount.RemoveAll(dir, m); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}

// Teardown unmounts a FUSE file system whose server has exited, although reads and removals fail.
func TestDeadFileSystem(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("skipped: this machine has no FUSE: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "pod")
	at := mustDir(t, dir+"/volumes/kubernetes.io~empty-dir/v/fuse")
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
	if err := unix.Mount("fuse", at, "fuse", 0, options); err != nil {
		device.Close()
		t.Skipf("skipped: cannot mount FUSE: %v", err)
	}
	device.Close()
	if _, err := os.ReadDir(at); !errors.Is(err, unix.ENOTCONN) {
		t.Fatalf("reading the file system without a server returned %v", err)
	}
	if err := (&volume.Set{Dir: dir, Mounter: m}).Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(t, dir); len(left) > 0 {
		t.Errorf("mounts left: %v", left)
	}
}
