package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/storage/volume"
)

// The group of the pod can read files with content from the API, regardless of their modes.
func TestFilesOfGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("skipped: only root can change the group of files")
	}
	src := &source{configMap: &corev1.ConfigMap{Data: map[string]string{"a": "1"}},
		secret: &corev1.Secret{Data: map[string][]byte{"a": []byte("1")}}}
	items := []corev1.KeyToPath{{Key: "a", Path: "open", Mode: new(int32(0o666))},
		{Key: "a", Path: "shut", Mode: new(int32(0o400))}, {Key: "a", Path: "theirs", User: new(int64(42))}}
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}, Source: src}
	facts := withGroup(podWith(
		corev1.Volume{Name: "c",
			VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items,
				DefaultMode: new(int32(0o600)), DefaultUser: new(int64(41))}}},
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{Items: items,
			DefaultMode: new(int32(0o600)), DefaultUser: new(int64(41))}}},
		corev1.Volume{Name: "p",
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o600)),
				DefaultUser: new(int64(41)),
				Sources:     []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{Items: items}}}}}},
	), new(int64(4711)))
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil {
		t.Fatal(err)
	}
	for name, dir := range paths {
		if group, mode := groupAndMode(t, dir); group != 4711 || mode != os.ModeSetgid|0o755 {
			t.Errorf("%s: the root of the volume has the group %d and the mode %v", name, group, mode)
		}
		for file, want := range map[string]os.FileMode{"open": 0o666, "shut": 0o440, "theirs": 0o640} {
			info, err := os.Stat(filepath.Join(dir, file))
			if err != nil {
				t.Fatal(err)
			}
			st, user := info.Sys().(*syscall.Stat_t), uint32(41)
			if file == "theirs" {
				user = 42
			}
			if info.Mode() != want || st.Gid != 4711 || st.Uid != user {
				t.Errorf("%s %s: %v, user %d, group %d", name, file, info.Mode(), st.Uid, st.Gid)
			}
		}
		before, _ := os.Readlink(dir + "/..data")
		if _, err := set.Prepare(t.Context(), facts); err != nil {
			t.Fatal(err)
		}
		if after, _ := os.Readlink(dir + "/..data"); after != before {
			t.Errorf("%s: the second Prepare wrote the files again", name)
		}
	}
}

func TestImmutable(t *testing.T) {
	t.Parallel()
	src := &source{
		configMap: &corev1.ConfigMap{Immutable: new(true), Data: map[string]string{"a": "1"}},
		secret:    &corev1.Secret{Immutable: new(true), Data: map[string][]byte{"a": []byte("1")}},
	}
	var known volume.Immutable
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}, Source: known.Over(src)}
	facts := podWith(configMapVolume(),
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}})
	for range 2 {
		paths, err := set.Prepare(t.Context(), facts)
		if err != nil || read(t, paths["v"]+"/a") != "1" || read(t, paths["s"]+"/a") != "1" {
			t.Errorf("paths %v, error %v", paths, err)
		}
		*src = source{} // the objects are deleted
	}
}

func TestMissingKeys(t *testing.T) {
	t.Parallel()
	src := &source{configMap: &corev1.ConfigMap{}, secret: &corev1.Secret{}}
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}, Source: src}
	items := []corev1.KeyToPath{{Key: "k", Path: "k"}}
	source := func(p corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{p}}}
	}
	for _, c := range []struct {
		source corev1.VolumeSource
		want   string
	}{
		{corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items}},
			"configmap references non-existent config key: k"},
		{corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{Items: items}}, "references non-existent secret key: k"},
		{source(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{Items: items}}),
			"configmap references non-existent config key: k"},
		{source(corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{Items: items, Optional: new(true)}}), ""},
		{source(corev1.VolumeProjection{Secret: &corev1.SecretProjection{Items: items}}),
			"references non-existent secret key: k"},
		{source(corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "ca"}}),
			"ClusterTrustBundles are not supported"},
		{source(corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}}),
			"podCertificate is not supported"},
		{corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}},
			"no volume plugin matched: volumes of type nfs are not supported by this node"},
		{corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{}}, "volumes of type gitRepo"},
		{corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{}}, "volumes of type flexVolume"},
		{corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{}}, "volumes of CSI drivers are not supported here"},
		{corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}, "volumes of type iscsi"},
		{corev1.VolumeSource{}, "the volume has no type"},
	} {
		_, err := set.Prepare(t.Context(), podWith(corev1.Volume{Name: "v", VolumeSource: c.source}))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(),
			`MountVolume.SetUp failed for volume "v" : `) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
