package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/agent/storage/tree"
)

// bundleFile returns the file with the certificates of all selected ClusterTrustBundles.
func (s *Set) bundleFile(ctx context.Context, p *corev1.ClusterTrustBundleProjection, f tree.File) (tree.Files, error) {
	if err := checkPath(p.Path); err != nil {
		return nil, err
	}
	if s.Bundles == nil {
		return nil, errors.New("ClusterTrustBundles are not supported by this node")
	}
	var name, signer string
	if p.Name != nil {
		name = *p.Name
	} else if p.SignerName != nil {
		signer = *p.SignerName
	}
	all, err := s.Bundles(ctx, name, signer)
	if err != nil {
		return nil, fmt.Errorf("read ClusterTrustBundles: %w", err)
	}
	if name == "" {
		selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector) // nil selects nothing
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all,
			func(b *certificatesv1.ClusterTrustBundle) bool { return !selector.Matches(labels.Set(b.Labels)) })
	}
	switch optional := p.Optional != nil && *p.Optional; {
	case len(all) > 0 || optional:
		return tree.Files{path.Clean(p.Path): with(f, trustAnchors(all), nil, p.User)}, nil
	case name != "":
		return nil, fmt.Errorf("clustertrustbundle %q not found", name)
	}
	return nil, fmt.Errorf("combination of signerName %q and labelSelector matched zero ClusterTrustBundles", signer)
}

// trustAnchors returns the certificates of the bundles, sorted, each once.
func trustAnchors(all []*certificatesv1.ClusterTrustBundle) []byte {
	certs := map[string]bool{}
	for _, b := range all {
		for rest := []byte(b.Spec.TrustBundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			certs[string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))] = true
		}
	}
	var out []byte
	for _, cert := range slices.Sorted(maps.Keys(certs)) {
		out = append(out, cert...)
	}
	return out
}
