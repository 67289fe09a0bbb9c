package volume_test

import (
	"context"
	"encoding/pem"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/host/mount"
	"monopod/agent/storage/volume"
)

func cert(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

func trustBundle(signer, label, certs string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: signer + ":" + label,
		Labels: map[string]string{"l": label}},
		Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: certs}}
}

// A projected volume contains each certificate of the selected bundles once, without text between the certificates.
func TestTrustBundles(t *testing.T) {
	t.Parallel()
	stored := []*certificatesv1.ClusterTrustBundle{
		trustBundle("s", "a", "about\n"+cert("2")+cert("1")), trustBundle("s", "b", cert("1")+cert("3")),
		trustBundle("t", "a", cert("4")),
	}
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{},
		Bundles: func(_ context.Context, name, signer string) (out []*certificatesv1.ClusterTrustBundle, _ error) {
			for _, b := range stored {
				if b.Name == name || name == "" && b.Spec.SignerName == signer {
					out = append(out, b)
				}
			}
			return out, nil
		}}
	all := &metav1.LabelSelector{}
	only := &metav1.LabelSelector{MatchLabels: map[string]string{"l": "b"}}
	for _, c := range []struct {
		p         corev1.ClusterTrustBundleProjection
		want, err string
	}{
		{corev1.ClusterTrustBundleProjection{Name: new("s:a")}, cert("1") + cert("2"), ""},
		{corev1.ClusterTrustBundleProjection{SignerName: new("s"), LabelSelector: all}, cert("1") + cert("2") + cert("3"),
			""},
		{corev1.ClusterTrustBundleProjection{SignerName: new("s"), LabelSelector: only}, cert("1") + cert("3"), ""},
		{corev1.ClusterTrustBundleProjection{SignerName: new("s")}, "",
			`combination of signerName "s" and labelSelector matched zero ClusterTrustBundles`},
		{corev1.ClusterTrustBundleProjection{SignerName: new("u"), LabelSelector: all, Optional: new(true)}, "", ""},
		{corev1.ClusterTrustBundleProjection{Name: new("x")}, "", `clustertrustbundle "x" not found`},
		{corev1.ClusterTrustBundleProjection{Name: new("x"), Optional: new(true)}, "", ""},
		{corev1.ClusterTrustBundleProjection{Name: new("x"), Path: "../ca"}, "", `invalid path "../ca"`},
	} {
		if c.p.Path == "" {
			c.p.Path = "ca/bundle.pem"
		}
		facts := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(int32(0o644)), Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &c.p}},
		}}})
		paths, err := set.Prepare(t.Context(), facts)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			continue
		}
		if err != nil {
			t.Error(err)
		} else if got := read(t, paths["v"]+"/ca/bundle.pem"); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
