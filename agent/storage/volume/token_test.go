package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/storage/volume"
)

func apiAccess() corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: new(int32(0o644)),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{ConfigMap: &corev1.ConfigMapProjection{Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		},
	}}}
}

// Credentials are in memory. A new token replaces all files atomically.
func TestToken(t *testing.T) {
	t.Parallel()
	m := &mounter{mounted: map[string]int64{}}
	src := &source{configMap: &corev1.ConfigMap{Data: map[string]string{"ca.crt": "PEM"}}}
	token := "one"
	set := volume.Set{Dir: t.TempDir(), Mounter: m, Source: src,
		Token: func(context.Context, *corev1.ServiceAccountTokenProjection) (string, error) { return token, nil }}
	facts := podWith(apiAccess())
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil {
		t.Fatal(err)
	}
	dir := paths["v"]
	if _, ok := m.mounted[dir]; !ok {
		t.Errorf("%s is not a tmpfs: %v", dir, m.mounted)
	}
	if read(t, dir+"/token") != "one" || read(t, dir+"/ca.crt") != "PEM" {
		t.Error("wrong content")
	}
	before, _ := os.Readlink(filepath.Join(dir, "..data"))
	token = "two"
	if _, err := set.Prepare(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
	after, _ := os.Readlink(filepath.Join(dir, "..data"))
	if read(t, dir+"/token") != "two" || before == after {
		t.Errorf("the files were not replaced atomically: version %s, then %s", before, after)
	}
	set.Token = func(context.Context, *corev1.ServiceAccountTokenProjection) (string, error) {
		return "", errors.New("no token")
	}
	if _, err := set.Prepare(t.Context(), facts); err == nil ||
		!strings.Contains(err.Error(), `MountVolume.SetUp failed for volume "v" : no token`) {
		t.Errorf("got %v", err)
	}
}

func TestTokenMode(t *testing.T) {
	t.Parallel()
	me := new(int64(os.Getuid()))
	as := func(user *int64) corev1.Container {
		return corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsUser: user}}
	}
	for name, c := range map[string]struct {
		containers []corev1.Container
		group      *int64
		want       os.FileMode
	}{
		"unspecified":    {[]corev1.Container{{}}, nil, 0o644},
		"one user":       {[]corev1.Container{as(me), as(me)}, nil, 0o600},
		"one of two":     {[]corev1.Container{as(me), {}}, nil, 0o644},
		"group":          {[]corev1.Container{{}}, new(int64(os.Getgid())), 0o640},
		"user and group": {[]corev1.Container{as(me)}, new(int64(os.Getgid())), 0o640},
	} {
		set := volume.Set{Dir: t.TempDir(), Mounter: &mounter{mounted: map[string]int64{}},
			Source: &source{configMap: &corev1.ConfigMap{Data: map[string]string{"ca.crt": "PEM"}}},
			Token:  func(context.Context, *corev1.ServiceAccountTokenProjection) (string, error) { return "x", nil }}
		facts := podWith(apiAccess())
		facts.Pod.Spec.Containers = append(facts.Pod.Spec.Containers[:0:0], c.containers...)
		facts.Pod.Spec.Containers[0].VolumeMounts = mounting("v")
		facts.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: c.group}
		paths, err := set.Prepare(t.Context(), facts)
		if err != nil {
			t.Fatal(name, err)
		}
		info, err := os.Stat(paths["v"] + "/token")
		if err != nil || info.Mode().Perm() != c.want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, c.want)
		}
	}
}
