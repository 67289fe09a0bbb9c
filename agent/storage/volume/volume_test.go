package volume_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/volume"
)

// mounter records mounts and their sizes.
type mounter struct {
	mount.Folders
	mounted map[string]int64
	fail    error
}

func (m *mounter) Tmpfs(dir string, o mount.Tmpfs) error {
	if m.fail != nil {
		return m.fail
	}
	m.mounted[dir] = o.Size
	return nil
}
func (m *mounter) Mounted(dir string) (bool, error) { _, ok := m.mounted[dir]; return ok, nil }
func (m *mounter) Unmount(dir string) error         { delete(m.mounted, dir); return nil }

type source struct {
	configMap *corev1.ConfigMap
	secret    *corev1.Secret
}

func (s *source) ConfigMap(string) (*corev1.ConfigMap, error) { return s.configMap, nil }
func (s *source) Secret(string) (*corev1.Secret, error)       { return s.secret, nil }

func mounting(volume string) []corev1.VolumeMount {
	return []corev1.VolumeMount{{Name: volume, MountPath: "/" + volume}}
}

// A volume that no container uses is not set up, even if its setup would fail.
func TestUnusedVolume(t *testing.T) {
	t.Parallel()
	facts := podWith(corev1.Volume{Name: "v",
		VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "none"}}})
	facts.Pod.Spec.Containers[0].VolumeMounts = nil
	set := volume.Set{Dir: t.TempDir(), Mounter: &mounter{mounted: map[string]int64{}}}
	if paths, err := set.Prepare(t.Context(), facts); err != nil || len(paths) > 0 {
		t.Errorf("paths %v, error %v", paths, err)
	}
}

// podWith returns a pod that mounts the volumes.
func podWith(volumes ...corev1.Volume) env.Facts {
	c := corev1.Container{Name: "main"}
	for _, v := range volumes {
		c.VolumeMounts = append(c.VolumeMounts, mounting(v.Name)...)
	}
	return env.Facts{Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web", "tier": "x"}},
		Spec:       corev1.PodSpec{Volumes: volumes, Containers: []corev1.Container{c}},
	}}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func configMapVolume(items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Items: items, DefaultMode: new(int32(0o600)),
	}}}
}

func TestConfigMap(t *testing.T) {
	t.Parallel()
	src := &source{configMap: &corev1.ConfigMap{Data: map[string]string{"a": "1", "b": "2"},
		BinaryData: map[string][]byte{"c": {0, 1}}}}
	set := volume.Set{Dir: t.TempDir(), Mounter: &mounter{mounted: map[string]int64{}}, Source: src}
	prepare := func() string {
		t.Helper()
		paths, err := set.Prepare(t.Context(), podWith(configMapVolume()))
		if err != nil {
			t.Fatal(err)
		}
		return paths["v"]
	}
	dir := prepare()
	if read(t, dir+"/a") != "1" || read(t, dir+"/c") != "\x00\x01" {
		t.Error("wrong content")
	}
	if info, err := os.Stat(dir + "/a"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	version, _ := os.Readlink(dir + "/..data")
	prepare()
	if again, _ := os.Readlink(dir + "/..data"); again != version {
		t.Error("Prepare wrote unchanged content again")
	}
	src.configMap = &corev1.ConfigMap{Data: map[string]string{"a": "changed", "d": "new"}}
	prepare()
	if read(t, dir+"/a") != "changed" || read(t, dir+"/d") != "new" {
		t.Error("the volume does not have the updated content")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..v_") {
			names = append(names, e.Name())
		}
	}
	if !slices.Equal(names, []string{"..data", "a", "d"}) || len(entries) != 4 {
		t.Errorf("the volume contains %v", entries)
	}
	if err := set.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(set.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Error("the folder still exists")
	}
}
func TestItems(t *testing.T) {
	t.Parallel()
	src := &source{configMap: &corev1.ConfigMap{Data: map[string]string{"a": "1"}}}
	set := volume.Set{Dir: t.TempDir(), Mounter: &mounter{mounted: map[string]int64{}}, Source: src}
	paths, err := set.Prepare(t.Context(),
		podWith(configMapVolume(corev1.KeyToPath{Key: "a", Path: "deep/er/x", Mode: new(int32(0o444))})))
	if err != nil || read(t, paths["v"]+"/deep/er/x") != "1" {
		t.Errorf("paths %v, error %v", paths, err)
	}
	for _, bad := range []string{"../x", "/x", "a/../../x", "..x"} {
		if _, err := set.Prepare(t.Context(), podWith(configMapVolume(corev1.KeyToPath{Key: "a", Path: bad}))); err == nil {
			t.Errorf("Prepare accepted the path %q", bad)
		}
	}
	if _, err := set.Prepare(t.Context(), podWith(configMapVolume(corev1.KeyToPath{Key: "z", Path: "z"}))); err == nil {
		t.Error("Prepare accepted a key that does not exist")
	}
	src.configMap = nil
	if _, err := set.Prepare(t.Context(), podWith(configMapVolume())); err == nil ||
		!strings.Contains(err.Error(), `configmap "cm" not found`) {
		t.Errorf("missing ConfigMap: %v", err)
	}
	optional := configMapVolume()
	optional.ConfigMap.Optional = new(true)
	if _, err := set.Prepare(t.Context(), podWith(optional)); err != nil {
		t.Errorf("missing optional ConfigMap: %v", err)
	}
}

func TestSecretAndMemoryAreMounted(t *testing.T) {
	t.Parallel()
	m := &mounter{mounted: map[string]int64{}}
	set := volume.Set{Dir: t.TempDir(), Mounter: m,
		Source: &source{secret: &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}}}
	facts := podWith(
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
		corev1.Volume{Name: "m",
			VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	)
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil || read(t, paths["s"]+"/k") != "v" || len(m.mounted) != 2 {
		t.Errorf("paths %v, mounts %v, error %v", paths, m.mounted, err)
	}
	if err := set.Teardown(t.Context()); err != nil || len(m.mounted) != 0 {
		t.Errorf("mounts left: %v, error %v", m.mounted, err)
	}
	m.fail = os.ErrPermission
	if _, err := set.Prepare(t.Context(), facts); err == nil || !strings.Contains(err.Error(), "cannot mount a tmpfs") ||
		strings.Contains(err.Error(), `"s"`) {
		t.Errorf("error without the permission to mount: %v", err)
	}
}

func TestProjectedAndDownward(t *testing.T) {
	t.Parallel()
	set := volume.Set{Dir: t.TempDir(), Mounter: &mounter{mounted: map[string]int64{}},
		Source: &source{configMap: &corev1.ConfigMap{Data: map[string]string{"a": "1"}}}}
	labels := []corev1.DownwardAPIVolumeFile{{Path: "labels",
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}
	paths, err := set.Prepare(t.Context(),
		podWith(corev1.Volume{Name: "p",
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: labels}},
			}}}}))
	if err != nil || read(t, paths["p"]+"/a") != "1" || read(t, paths["p"]+"/labels") != "app=\"web\"\ntier=\"x\"" {
		t.Errorf("paths %v, error %v", paths, err)
	}
}
