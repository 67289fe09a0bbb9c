package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/apiserver/kit/check"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/kind/table"
)

type bundle = certificatesv1.ClusterTrustBundle

// maxBundle is the maximum size of a bundle in bytes (upstream: 1 MB in etcd).
const maxBundle = 1 << 20

func bundles() kind.Resource {
	return kind.Resource{
		GVR:       client.ClusterTrustBundles,
		Kind:      "ClusterTrustBundle",
		New:       func() kind.Object { return new(bundle) },
		Validate:  bundleErrors,
		ValidName: func(string, bool) []string { return nil }, // bundleErrors checks it against the signer
		Fields: func(obj kind.Object) fields.Set {
			return fields.Set{"spec.signerName": obj.(*bundle).Spec.SignerName}
		},
		Columns: []table.Column{
			table.Name(),
			table.Text("SignerName", "The signer whose certificates the bundle verifies.",
				func(b *bundle) string { return table.OrNone(b.Spec.SignerName) }),
		},
	}
}

func bundleErrors(next, cur kind.Object, _ string) (errs field.ErrorList) {
	b, at := next.(*bundle), field.NewPath("spec")
	signer := b.Spec.SignerName
	if b.Name != "" {
		errs = append(errs, check.Invalid(field.NewPath("metadata", "name"), b.Name, bundleNameErrors(b.Name, signer))...)
	}
	if signer != "" {
		errs = append(errs, check.Signer(signer, at.Child("signerName"))...)
	}
	old, _ := cur.(*bundle)
	if old == nil || old.Spec.TrustBundle != b.Spec.TrustBundle {
		errs = append(errs, anchorErrors(b.Spec.TrustBundle, at.Child("trustBundle"))...)
	}
	if old != nil {
		errs = append(errs, apivalidation.ValidateImmutableField(signer, old.Spec.SignerName, at.Child("signerName"))...)
	}
	return errs
}

// bundleNameErrors checks the name of a bundle against its signer, which is empty for a bundle without one.
func bundleNameErrors(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, false)
}

// anchorErrors checks the certificates of a bundle. As upstream's, its errors do not quote the bundle.
func anchorErrors(text string, at *field.Path) (errs field.ErrorList) {
	if len(text) > maxBundle {
		return field.ErrorList{field.TooLong(at, fmt.Sprintf("<value omitted, len %d>", len(text)), maxBundle)}
	}
	places := map[string][]int{}
	var order []string
	bad := func(format string, args ...any) {
		errs = append(errs, field.Invalid(at, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	for i, rest := 0, []byte(text); ; i++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		switch {
		case block.Type != "CERTIFICATE":
			bad("entry %d has bad block type: %v", i, block.Type)
		case len(block.Headers) > 0:
			bad("entry %d has PEM block headers", i)
		case err != nil:
			bad("entry %d does not parse as X.509", i)
		case !cert.IsCA:
			bad("entry %d does not have the CA bit set", i)
		default:
			key := string(block.Bytes)
			if places[key] == nil {
				order = append(order, key)
			}
			places[key] = append(places[key], i)
		}
	}
	if len(errs) > 0 {
		return errs
	}
	if len(places) == 0 {
		bad("at least one trust anchor must be provided")
	}
	order = slices.DeleteFunc(order, func(key string) bool { return len(places[key]) == 1 })
	for _, key := range order {
		bad("duplicate trust anchor (indices %v)", places[key])
	}
	return errs
}
