package check

import (
	"maps"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Upstream's limits of the validity of a pod's certificate, in seconds. Kubernetes' own signers issue for at most a
// day.
const (
	minPodCertificate        = 3600
	maxPodCertificate        = 91 * 86400
	maxKubernetesCertificate = 86400
)

// PodCertificateSeconds returns the limits of the requested validity of a pod's certificate.
func PodCertificateSeconds(signer string) (least, most int32) {
	if domain, _, _ := strings.Cut(signer, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		return minPodCertificate, maxKubernetesCertificate
	}
	return minPodCertificate, maxPodCertificate
}

// maxSigner is the maximum length of a signer's name: 253 for the domain, 1 for the slash, 317 for the path.
const maxSigner = 571

// Signer checks a signer's name, which has the form "example.com/signer".
func Signer(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	domain, path, ok := strings.Cut(name, "/")
	if !ok || path == "" || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name,
			"must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	errs := Invalid(at, domain, validation.IsDNS1123Subdomain(domain))
	if len(errs) == 0 && !strings.Contains(domain, ".") {
		errs = append(errs, field.Invalid(at, domain, "should be a domain with at least two segments separated by dots"))
	}
	for part := range strings.SplitSeq(path, ".") {
		errs = append(errs, Invalid(at, part, validation.IsDNS1123Subdomain(part))...)
	}
	if len(name) > maxSigner {
		errs = append(errs, field.TooLong(at, name, maxSigner))
	}
	return errs
}

// UserAnnotations checks the annotations that the author of a pod passes to the signer of its certificate. Each key
// must have a domain.
func UserAnnotations(at *field.Path, annotations map[string]string) (errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		errs = append(errs, validation.IsDomainPrefixedKey(at, strings.ToLower(key))...)
	}
	if err := apivalidation.ValidateAnnotationsSize(annotations); err != nil {
		errs = append(errs, field.TooLong(at, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}
