package volume_test

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/storage/volume"
)

// The key and the chain are in one file or in two. The files are in memory, and only the user and the group of the pod
// can read them.
func TestPodCertificate(t *testing.T) {
	t.Parallel()
	m := &mounter{mounted: map[string]int64{}}
	asked := map[volume.Source]string{}
	set := volume.Set{Dir: t.TempDir(), Mounter: m,
		Certificate: func(_ context.Context, at volume.Source, p *corev1.PodCertificateProjection) (volume.Bundle, error) {
			asked[at] = p.SignerName
			return volume.Bundle{Key: []byte("key\n"), Chain: []byte("chain\n")}, nil
		}}
	facts := podWith(
		corev1.Volume{Name: "v",
			VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: new(int32(0o644)),
				Sources: []corev1.VolumeProjection{
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: "a", CredentialBundlePath: "a/bundle.pem"}},
					{PodCertificate: &corev1.PodCertificateProjection{SignerName: "b", KeyPath: "key", CertificateChainPath: "chain"}},
				}}}})
	facts.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(os.Getgid()))}
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"a/bundle.pem": "key\nchain\n", "key": "key\n", "chain": "chain\n"} {
		if got := read(t, paths["v"]+"/"+file); got != want {
			t.Errorf("%s is %q", file, got)
		}
	}
	if info, err := os.Stat(paths["v"] + "/key"); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the key has the mode %v, error %v", info.Mode(), err)
	}
	if len(m.mounted) != 1 || asked[volume.Source{Volume: "v"}] != "a" ||
		asked[volume.Source{Volume: "v", Index: 1}] != "b" {
		t.Errorf("mounts %v, requested certificates %v", m.mounted, asked)
	}
	if _, err := (&volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}}).Prepare(t.Context(), facts); err == nil {
		t.Error("Prepare without certificates succeeded")
	}
}
