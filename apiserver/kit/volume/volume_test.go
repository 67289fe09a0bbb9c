package volume_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/volume"
)

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": "Always", "nginx:latest": "Always", "nginx:1": "IfNotPresent", "host:5000/nginx": "Always",
		"host:5000/nginx:1": "IfNotPresent", "nginx@sha256:abc": "IfNotPresent", "nginx:latest@sha256:abc": "IfNotPresent",
	} {
		if got := volume.PullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

// The errors are upstream's, because clients search for these texts.
func TestCertificateSeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signer  string
		seconds int32
		want    string
	}{
		{"example.com/signer", 3600, ""},
		{"example.com/signer", 3599, "if provided, maxExpirationSeconds must be >= 3600"},
		{"example.com/signer", 91 * 86400, ""},
		{"example.com/signer", 91*86400 + 1, "if provided, maxExpirationSeconds must be <= 7862400"},
		{"kubernetes.io/signer", 86401, "if provided, maxExpirationSeconds must be <= 86400"},
	} {
		v := &corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: c.signer, KeyType: "ED25519", CredentialBundlePath: "bundle.pem", MaxExpirationSeconds: &c.seconds}}}}}
		errs := volume.All()["projected"].Validate(v, field.NewPath("projected")).ToAggregate()
		if (errs == nil) != (c.want == "") || errs != nil && !strings.Contains(errs.Error(), c.want) {
			t.Errorf("%s for %d s: %v, want %q", c.signer, c.seconds, errs, c.want)
		}
	}
}
