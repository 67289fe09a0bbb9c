package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/volume"
)

// claimPod returns a pod with one container that mounts the claim c as v.
func claimPod(change ...func(*corev1.Pod)) env.Facts {
	facts := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	facts.Pod.Spec.Containers = []corev1.Container{{Name: "c",
		VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}
	for _, f := range change {
		f(facts.Pod)
	}
	return facts
}

func asDevice(p *corev1.Pod) {
	p.Spec.Containers[0].VolumeMounts = nil
	p.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
}

func onDisk(source corev1.PersistentVolumeSource, mode corev1.PersistentVolumeMode) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source, VolumeMode: &mode}}
}

func localAt(path string) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}
}

func hostAt(path string, kind corev1.HostPathType) corev1.PersistentVolumeSource {
	return corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind}}
}

// found returns a Set whose claims are all bound to pv.
func found(t *testing.T, pv *corev1.PersistentVolume) *volume.Set {
	return &volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{},
		Claim: func(context.Context, *corev1.Volume) (*corev1.PersistentVolume, error) {
			return pv, nil
		}}
}

func TestPathOfClaim(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(dir+"/file", nil, 0o600), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	const files, device = corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		pv   *corev1.PersistentVolume
		pod  func(*corev1.Pod)
		want string // a path or part of the error
	}{
		"local":              {pv: onDisk(localAt(dir), files), want: dir},
		"local, a link":      {pv: onDisk(localAt(link), files), want: dir},
		"local, missing":     {pv: onDisk(localAt(dir+"/none"), files), want: "does not exist"},
		"local, a file":      {pv: onDisk(localAt(dir+"/file"), files), want: "is neither a folder nor a block device"},
		"local, char device": {pv: onDisk(localAt("/dev/null"), files), want: "is neither a folder nor a block device"},
		"hostPath":           {pv: onDisk(hostAt(dir, corev1.HostPathDirectory), files), want: dir},
		"hostPath, wrong type": {pv: onDisk(hostAt(dir+"/file", corev1.HostPathDirectory), files),
			want: "hostPath type check failed"},
		"block, no device": {pv: onDisk(localAt(dir), device), pod: asDevice, want: "is not a block device"},
		"block, mounted": {pv: onDisk(localAt(dir), device),
			want: "has volumeMode Block, but is specified in volumeMounts"},
		"folder as device": {pv: onDisk(localAt(dir), files), pod: asDevice,
			want: "has volumeMode Filesystem, but is specified in volumeDevices"},
		"unsupported type": {pv: onDisk(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, files),
			want: "PersistentVolumes of type nfs are not supported by this node"},
		"unsupported type as device": {pv: onDisk(corev1.PersistentVolumeSource{FC: &corev1.FCVolumeSource{}}, device),
			pod: asDevice, want: "PersistentVolumes of type fc are not supported by this node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var change []func(*corev1.Pod)
			if c.pod != nil {
				change = append(change, c.pod)
			}
			paths, err := found(t, c.pv).Prepare(t.Context(), claimPod(change...))
			if strings.HasPrefix(c.want, "/") && (err != nil || paths["v"] != c.want) {
				t.Errorf("path %q, error %v, want %s", paths["v"], err, c.want)
			}
			if !strings.HasPrefix(c.want, "/") && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("path %q, error %v, want %s", paths["v"], err, c.want)
			}
		})
	}
}

func TestGroupOfClaimIsChangedOncePerPod(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can change the group of files")
	}
	dir := t.TempDir()
	write(t, dir+"/file", "")
	set := found(t, onDisk(localAt(dir), corev1.PersistentVolumeFilesystem))
	facts := withGroup(claimPod(), new(int64(4711)))
	prepare := func() {
		t.Helper()
		paths, err := set.Prepare(t.Context(), facts)
		if err != nil {
			t.Fatal(err)
		}
		set.Have = paths
	}
	prepare()
	if group, _ := groupAndMode(t, dir+"/file"); group != 4711 {
		t.Errorf("group %d", group)
	}
	if err := os.Chown(dir+"/file", -1, 12); err != nil {
		t.Fatal(err)
	}
	prepare()
	if group, _ := groupAndMode(t, dir+"/file"); group != 12 {
		t.Error("a refresh changed the group again")
	}
}

func groupAndMode(t *testing.T, path string) (group uint32, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Gid, info.Mode() & (os.ModePerm | os.ModeSetgid | os.ModeSetuid)
}

func TestUnmountKeepsDataOfClaim(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir+"/file", "")
	set := found(t, onDisk(localAt(dir), corev1.PersistentVolumeFilesystem))
	if _, err := set.Prepare(t.Context(), claimPod()); err != nil {
		t.Fatal(err)
	}
	if err := set.Teardown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir + "/file"); err != nil {
		t.Error("Teardown removed the content of the claim")
	}
}

func TestDevices(t *testing.T) {
	t.Parallel()
	facts := claimPod(asDevice)
	get := func() string {
		d := volume.Devices(facts.Pod, &facts.Pod.Spec.Containers[0], map[string]string{"v": "/dev/loop7"})
		if len(d) != 1 {
			t.Fatalf("%d devices", len(d))
		}
		return d[0].HostPath + " " + d[0].ContainerPath + " " + d[0].Permissions
	}
	if got := get(); got != "/dev/loop7 /dev/v mrw" {
		t.Error("device: ", got)
	}
	facts.Pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	if got := get(); got != "/dev/loop7 /dev/v r" {
		t.Error("read-only device: ", got)
	}
}
