package pull

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Policies of Verification, as in KubeletConfiguration.
const (
	NeverVerify       = "NeverVerify"
	VerifyPulled      = "NeverVerifyPreloadedImages"
	VerifyNotListed   = "NeverVerifyAllowlistedImages"
	AlwaysVerify      = "AlwaysVerify"
	policyFlag        = "image-pull-credentials-verification-policy"
	listFlag          = "preloaded-images-verification-allowlist"
	allVerifyPolicies = NeverVerify + ", " + VerifyPulled + ", " + VerifyNotListed + ", " + AlwaysVerify
)

// Verification decides for which present images a pod must have credentials. The zero value is upstream's default: for
// images that the node pulled.
type Verification struct {
	Policy string   // empty: NeverVerifyPreloadedImages
	Listed []string // for NeverVerifyAllowlistedImages: names without tag and digest, or prefixes that end in /*
}

// Flags adds the settings that kubelet has in its configuration file.
func (v *Verification) Flags(f *pflag.FlagSet) {
	f.StringVar(&v.Policy, policyFlag, VerifyPulled,
		"Images on the node for which a pod must have the credentials that can pull them: "+allVerifyPolicies+".")
	f.StringSliceVar(&v.Listed, listFlag, nil, "Comma-separated list of images that all pods may use with the policy "+
		VerifyNotListed+": names without tag and digest, or prefixes that end in /*.")
}

// Check validates the flags.
func (v *Verification) Check() error {
	switch v.Policy {
	case "", NeverVerify, VerifyPulled, VerifyNotListed, AlwaysVerify:
	default:
		return fmt.Errorf("--%s must be one of %s, got %q", policyFlag, allVerifyPolicies, v.Policy)
	}
	if len(v.Listed) > 0 && v.Policy != VerifyNotListed {
		return fmt.Errorf("--%s needs --%s=%s", listFlag, policyFlag, VerifyNotListed)
	}
	for _, pattern := range v.Listed {
		if err := checkPattern(pattern); err != nil {
			return fmt.Errorf("--%s: %q: %w", listFlag, pattern, err)
		}
	}
	return nil
}

func checkPattern(pattern string) error {
	prefix, wild := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return errors.New("leading and trailing spaces are not allowed")
	case strings.Contains(prefix, "*"):
		return errors.New("* is only allowed at the end, as /*")
	case wild && prefix == "":
		return errors.New("the host of the registry is required")
	case wild:
		return nil
	}
	ref, err := reference.Parse(pattern)
	if err != nil {
		return err
	}
	if named, ok := ref.(reference.Named); !ok || !reference.IsNameOnly(named) {
		return errors.New("neither tag nor digest is allowed")
	}
	return nil
}

// needed reports whether a pod needs credentials for a present image.
func (v *Verification) needed(image string, pulled bool) bool {
	switch v.Policy {
	case NeverVerify:
		return false
	case AlwaysVerify:
		return true
	case VerifyNotListed:
		return !slices.ContainsFunc(v.Listed, func(pattern string) bool { return listed(pattern, image) })
	}
	return pulled
}

func listed(pattern, image string) bool {
	if ref, err := reference.Parse(image); err == nil {
		if named, ok := ref.(reference.Named); ok {
			image = named.Name()
		}
	}
	if prefix, wild := strings.CutSuffix(pattern, "*"); wild {
		return strings.HasPrefix(image, prefix)
	}
	return image == pattern
}

// hasAccess reports whether the pod may use a present image without a pull: it has the credentials with which the image
// was pulled, or needs none.
func (p *Puller) hasAccess(r Request, img *cri.Image) (bool, error) {
	if p.Records == nil {
		return true, nil
	}
	who, known, err := p.Records.find(r.Image, img)
	if err != nil {
		return false, nil //nolint:nilerr // without a readable record, a pull decides, as upstream
	}
	if !p.Verify.needed(r.Image, known) || who.Node {
		return true, nil
	}
	if len(who.Secrets) == 0 {
		return false, nil
	}
	secrets, err := r.secrets()
	if err != nil {
		return false, err
	}
	ring, _ := OfSecrets(secrets) // unreadable secrets have no credentials
	for _, c := range ring.Lookup(r.Image) {
		for _, s := range who.Secrets {
			if c.Source.Hash != s.Hash && !c.Source.Same(s) {
				continue
			}
			// As upstream, access remains after the secret changes, and other secrets with the same login get access.
			if *c.Source != s && len(who.Secrets) < maxSecrets {
				p.Records.mu.Lock()
				_ = p.Records.add(r.Image, img.Id, c.Source) // after a failure the next check adds it
				p.Records.mu.Unlock()
			}
			return true, nil
		}
	}
	return false, nil
}

// secrets returns the pod's pull secrets.
func (r Request) secrets() ([]*corev1.Secret, error) {
	if r.Secrets == nil {
		return nil, nil
	}
	return r.Secrets()
}
