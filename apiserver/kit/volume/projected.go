package volume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
)

// tokenSeconds is the lifetime of a projected token if the source does not set it.
const tokenSeconds = 3600

// certificateSeconds is the maximum lifetime of a pod's certificate if the source does not set it.
const certificateSeconds = 86400

func projectedDefault(v *corev1.VolumeSource) {
	modeDefault(&v.Projected.DefaultMode)
	for i := range v.Projected.Sources {
		p := &v.Projected.Sources[i]
		if p.DownwardAPI != nil {
			downwardDefault(p.DownwardAPI.Items)
		}
		if token := p.ServiceAccountToken; token != nil && token.ExpirationSeconds == nil {
			token.ExpirationSeconds = new(int64(tokenSeconds))
		}
		if c := p.PodCertificate; c != nil && c.MaxExpirationSeconds == nil {
			c.MaxExpirationSeconds = new(int32(certificateSeconds))
		}
	}
}

func projectedErrors(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
	errs := modeErrors(v.Projected.DefaultMode, at.Child("defaultMode"))
	seen := map[string]bool{}
	for i := range v.Projected.Sources {
		at := at.Child("sources").Index(i)
		errs = append(errs, projectionErrors(&v.Projected.Sources[i], at)...)
		for _, file := range projectedFiles(&v.Projected.Sources[i]) {
			if file != "" && seen[file] {
				errs = append(errs, field.Invalid(at, file, "conflicting duplicate paths"))
			}
			seen[file] = true
		}
	}
	return errs
}

func projectionErrors(p *corev1.VolumeProjection, path *field.Path) field.ErrorList {
	errs := check.Union(path, *p, "projection type")
	if s := p.Secret; s != nil {
		errs = append(errs, check.Required(path.Child("secret", "name"), s.Name)...)
		errs = append(errs, filesErrors(nil, s.Items, path.Child("secret"))...)
	}
	if c := p.ConfigMap; c != nil {
		errs = append(errs, check.Required(path.Child("configMap", "name"), c.Name)...)
		errs = append(errs, filesErrors(nil, c.Items, path.Child("configMap"))...)
	}
	if d := p.DownwardAPI; d != nil {
		errs = append(errs, downwardErrors(d.Items, path.Child("downwardAPI", "items"))...)
	}
	if t := p.ServiceAccountToken; t != nil {
		errs = append(errs, tokenErrors(t, path.Child("serviceAccountToken"))...)
	}
	if b := p.ClusterTrustBundle; b != nil {
		errs = append(errs, bundleErrors(b, path.Child("clusterTrustBundle"))...)
	}
	if c := p.PodCertificate; c != nil {
		errs = append(errs, certificateErrors(c, path.Child("podCertificate"))...)
	}
	return errs
}

// tokenErrors limits a token's lifetime as upstream does: ten minutes to 2^32 seconds.
func tokenErrors(t *corev1.ServiceAccountTokenProjection, path *field.Path) field.ErrorList {
	errs := check.FilePath(t.Path, path.Child("path"))
	if s := t.ExpirationSeconds; s != nil && *s < 600 {
		errs = append(errs,
			field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
	} else if s != nil && *s > 1<<32 {
		errs = append(errs,
			field.Invalid(path.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

func bundleErrors(b *corev1.ClusterTrustBundleProjection, at *field.Path) (errs field.ErrorList) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		errs = append(errs, field.Invalid(at, b, "only one of name and signerName may be used"))
	case b.Name != nil:
		errs = append(errs, check.Required(at.Child("name"), *b.Name)...)
		if b.LabelSelector != nil {
			errs = append(errs,
				field.Invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		errs = append(errs, check.Required(at.Child("signerName"), *b.SignerName)...)
		errs = append(errs,
			metav1validation.ValidateLabelSelector(b.LabelSelector, metav1validation.LabelSelectorValidationOptions{},
				at.Child("labelSelector"))...)
	default:
		errs = append(errs, field.Required(at, "either name or signerName must be specified"))
	}
	return append(errs, check.FilePath(b.Path, at.Child("path"))...)
}

func certificateErrors(c *corev1.PodCertificateProjection, at *field.Path) field.ErrorList {
	errs := check.Signer(c.SignerName, at.Child("signerName"))
	errs = append(errs,
		check.OneOf(at.Child("keyType"), c.KeyType, "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521",
			"ED25519")...)
	if n := c.MaxExpirationSeconds; n != nil {
		switch least, most := check.PodCertificateSeconds(c.SignerName); {
		case *n < least:
			errs = append(errs,
				field.Invalid(at.Child("maxExpirationSeconds"), *n,
					fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", least)))
		case *n > most:
			errs = append(errs,
				field.Invalid(at.Child("maxExpirationSeconds"), *n,
					fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", most)))
		}
	}
	errs = append(errs, check.UserAnnotations(at.Child("userAnnotations"), c.UserAnnotations)...)
	if len(certificatePaths(c)) == 0 {
		errs = append(errs,
			field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
	for _, of := range []struct{ name, path string }{
		{"credentialBundlePath", c.CredentialBundlePath}, {"keyPath", c.KeyPath},
		{"certificateChainPath", c.CertificateChainPath},
	} {
		if of.path != "" {
			errs = append(errs, check.FilePath(of.path, at.Child(of.name))...)
		}
	}
	return errs
}

// certificatePaths returns the paths of the files of a pod's certificate.
func certificatePaths(c *corev1.PodCertificateProjection) []string {
	return slices.DeleteFunc([]string{c.CredentialBundlePath, c.KeyPath, c.CertificateChainPath},
		func(path string) bool { return path == "" })
}

// projectedFiles returns the paths of a source's files.
func projectedFiles(p *corev1.VolumeProjection) []string {
	var files []string
	if p.Secret != nil {
		files = slices.Concat(files, itemPaths(p.Secret.Items))
	}
	if p.ConfigMap != nil {
		files = slices.Concat(files, itemPaths(p.ConfigMap.Items))
	}
	if p.DownwardAPI != nil {
		files = slices.Concat(files, downwardPaths(p.DownwardAPI.Items))
	}
	if p.ServiceAccountToken != nil {
		files = append(files, p.ServiceAccountToken.Path)
	}
	if p.ClusterTrustBundle != nil {
		files = append(files, p.ClusterTrustBundle.Path)
	}
	if p.PodCertificate != nil {
		files = append(files, certificatePaths(p.PodCertificate)...)
	}
	return files
}

func projectedWarnings(v *corev1.Volume, _ *field.Path) []string {
	var o overlaps
	for i := range v.Projected.Sources {
		paths, of := projectionPaths(&v.Projected.Sources[i])
		if of.kind == "" {
			o.lines = append(o.lines, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			continue
		}
		of.volume = v.Name
		o.add(paths, of)
	}
	return o.lines
}

// projectionPaths returns the paths of a projection's files and what they come from, which has no kind if there is
// nothing.
func projectionPaths(p *corev1.VolumeProjection) (paths []string, of source) {
	switch {
	case p.ConfigMap != nil:
		return itemPaths(p.ConfigMap.Items), source{kind: "Projected ConfigMap", object: p.ConfigMap.Name}
	case p.Secret != nil:
		return itemPaths(p.Secret.Items), source{kind: "Projected Secret", object: p.Secret.Name}
	case p.DownwardAPI != nil:
		return downwardPaths(p.DownwardAPI.Items), source{kind: "Projected DownwardAPI"}
	case p.ServiceAccountToken != nil:
		return []string{p.ServiceAccountToken.Path}, source{kind: "Projected ServiceAccountToken"}
	case p.ClusterTrustBundle != nil:
		return []string{p.ClusterTrustBundle.Path}, source{kind: "Projected ClusterTrustBundle"}
	case p.PodCertificate != nil:
		return certificatePaths(p.PodCertificate), source{kind: "Projected PodCertificate"}
	}
	return nil, source{}
}

func projectedReferences(pod *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
	for i := range v.Projected.Sources {
		p := &v.Projected.Sources[i]
		if p.Secret != nil {
			add("secrets", p.Secret.Name)
		}
		if p.ConfigMap != nil {
			add("configmaps", p.ConfigMap.Name)
		}
		if p.ServiceAccountToken != nil {
			add("serviceaccounts", pod.Spec.ServiceAccountName)
		}
		if p.ClusterTrustBundle != nil {
			name := ""
			if p.ClusterTrustBundle.Name != nil {
				name = *p.ClusterTrustBundle.Name
			}
			add("clustertrustbundles", name)
		}
		if p.PodCertificate != nil {
			add("podcertificaterequests", "")
		}
	}
}
