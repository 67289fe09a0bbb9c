package volume_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/volume"
)

// mountsOf returns the mounts of a container with the volume "v" at dir.
func mountsOf(t *testing.T, m volume.Mounter, dir string, vars []env.Var, can volume.Features,
	list ...corev1.VolumeMount) ([]*cri.Mount, error) {
	t.Helper()
	set := volume.Set{Dir: t.TempDir(), Mounter: m}
	t.Cleanup(func() {
		if err := set.Unmount(t.Context()); err != nil {
			t.Error(err)
		}
	})
	c := &corev1.Container{Name: "c", VolumeMounts: list}
	return set.Mounts(&corev1.Pod{}, c, map[string]string{"v": dir}, vars, can)
}

func TestMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	got, err := mountsOf(t, mount.Folders{}, dir, []env.Var{{Name: "NAME", Value: "n"}}, volume.Features{},
		corev1.VolumeMount{Name: "v", MountPath: "/a", ReadOnly: true},
		corev1.VolumeMount{Name: "v", MountPath: "/b", SubPathExpr: "x/$(NAME)"})
	if err != nil || len(got) != 2 || !got[0].Readonly || got[1].Readonly || got[0].HostPath != dir ||
		got[1].HostPath != dir+"/x/n" {
		t.Errorf("mounts %v, error %v", got, err)
	}
	if _, err := mountsOf(t, mount.Folders{}, dir, nil, volume.Features{},
		corev1.VolumeMount{Name: "none", MountPath: "/a"}); !errors.Is(err, env.ErrConfig) {
		t.Errorf("mount of an unknown volume: %v", err)
	}
}

// Volumes with content from the API are read-only in containers, regardless of the mounts.
func TestReadOnlyKinds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		source corev1.VolumeSource
		want   bool
	}{
		{corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false},
		{corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}, false},
		{corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}, true},
		{corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}, true},
		{corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}, true},
		{corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}, true},
		{corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ReadOnly: true}}, true},
		{corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}, false},
	} {
		set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}}
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: c.source}}}}
		got, err := set.Mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}},
			map[string]string{"v": dir}, nil, volume.Features{})
		if err != nil || got[0].Readonly != c.want {
			t.Errorf("%v: %v, %v", c.source, got, err)
		}
	}
}

func TestFeatures(t *testing.T) {
	t.Parallel()
	mode := func(m corev1.RecursiveReadOnlyMode) corev1.VolumeMount {
		return corev1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true, RecursiveReadOnly: &m}
	}
	options := corev1.VolumeMount{Name: "v", MountPath: "/v", BindMountOptions: []string{"noexec"}}
	for _, c := range []struct {
		name      string
		mount     corev1.VolumeMount
		can       volume.Features
		recursive bool
		err       string
	}{
		{"disabled", mode(corev1.RecursiveReadOnlyDisabled), volume.Features{RecursiveReadOnly: true}, false, ""},
		{"if possible, supported", mode(corev1.RecursiveReadOnlyIfPossible), volume.Features{RecursiveReadOnly: true}, true,
			""},
		{"if possible, unsupported", mode(corev1.RecursiveReadOnlyIfPossible), volume.Features{}, false, ""},
		{"enabled", mode(corev1.RecursiveReadOnlyEnabled), volume.Features{RecursiveReadOnly: true}, true, ""},
		{"enabled without support", mode(corev1.RecursiveReadOnlyEnabled), volume.Features{}, false,
			`volume "v" requested recursive read-only mode, but it is not supported by the runtime`},
		{"options", options, volume.Features{Options: true}, false, ""},
		{"options without support", options, volume.Features{}, false,
			`volume "v" requested bind mount options, but they are not supported by the runtime`},
	} {
		got, err := mountsOf(t, mount.Folders{}, t.TempDir(), nil, c.can, c.mount)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err != nil || got[0].RecursiveReadOnly != c.recursive ||
			len(got[0].MountOptions) != len(c.mount.BindMountOptions) {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}

// The runtime mounts an image read-only. A mount with options that it does not support for images is an error.
func TestImageMounts(t *testing.T) {
	t.Parallel()
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}, Images: map[string]string{"v": "sha256:1"}}
	for _, tc := range []struct {
		mount corev1.VolumeMount
		can   volume.Features
		want  *cri.Mount
	}{
		{corev1.VolumeMount{}, volume.Features{}, &cri.Mount{}},
		{corev1.VolumeMount{SubPath: "a/b"}, volume.Features{ImageSubPaths: true}, &cri.Mount{ImageSubPath: "a/b"}},
		{corev1.VolumeMount{SubPathExpr: "$(X)/b"}, volume.Features{ImageSubPaths: true}, &cri.Mount{ImageSubPath: "x/b"}},
		{corev1.VolumeMount{SubPath: "a"}, volume.Features{}, nil},
		{corev1.VolumeMount{BindMountOptions: []string{"noexec"}}, volume.Features{Options: true}, nil},
	} {
		tc.mount.Name, tc.mount.MountPath = "v", "/v"
		pod := &corev1.Pod{}
		c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{tc.mount}}
		got, err := set.Mounts(pod, c, map[string]string{"v": ""}, []env.Var{{Name: "X", Value: "x"}}, tc.can)
		if tc.want == nil {
			if !errors.Is(err, env.ErrConfig) {
				t.Errorf("%v: %v, %v", tc.mount, got, err)
			}
			continue
		}
		tc.want.ContainerPath, tc.want.Readonly, tc.want.Image = "/v", true, &cri.ImageSpec{Image: "sha256:1"}
		if err != nil || len(got) != 1 || got[0].String() != tc.want.String() {
			t.Errorf("%v: %v, %v", tc.mount, got, err)
		}
	}
}

func TestPropagation(t *testing.T) {
	t.Parallel()
	for mode, want := range map[corev1.MountPropagationMode]cri.MountPropagation{
		corev1.MountPropagationNone:            cri.MountPropagation_PROPAGATION_PRIVATE,
		corev1.MountPropagationHostToContainer: cri.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		corev1.MountPropagationBidirectional:   cri.MountPropagation_PROPAGATION_BIDIRECTIONAL,
	} {
		got, err := mountsOf(t, mount.Folders{}, t.TempDir(), nil, volume.Features{},
			corev1.VolumeMount{Name: "v", MountPath: "/v", MountPropagation: &mode})
		if err != nil || got[0].Propagation != want {
			t.Errorf("%s: %v, %v", mode, got, err)
		}
	}
}

func TestSubPathIsRejected(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, to := range map[string]string{"absolute": "/etc", "up": "../..", "dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ sub, expr, want string }{
		{"/etc", "", "must not be an absolute path"},
		{"a/../../b", "", "must not contain '..'"},
		{"..", "", "must not contain '..'"},
		{"absolute/passwd", "", "it points outside the volume"},
		{"absolute", "", "it points outside the volume"},
		{"up/x", "", "it points outside the volume"},
		{"dangling/x", "", "not a directory"},
		{"file/x", "", "not a directory"},
		{"", "$(NONE)/x", `missing value for "NONE"`},
		{"", "$(UP)", "must not contain '..'"},
		{"", "$(ROOT)", "must not be an absolute path"},
	} {
		got, err := mountsOf(t, mount.Folders{}, dir, []env.Var{{Name: "UP", Value: "../x"}, {Name: "ROOT", Value: "/etc"}},
			volume.Features{},
			corev1.VolumeMount{Name: "v", MountPath: "/v", SubPath: c.sub, SubPathExpr: c.expr})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v, %v, want %q", c.sub, c.expr, got, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "x")); err == nil {
		t.Error("a folder was created outside of the volume")
	}
}
