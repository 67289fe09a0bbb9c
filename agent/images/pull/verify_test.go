package pull_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/pull"
)

const private, public = "reg.example.com/a:1", "reg.example.com/b:1"

func coordinates(s *corev1.Secret, namespace, name, uid string) *corev1.Secret {
	s.Namespace, s.Name, s.UID = namespace, name, types.UID(uid)
	return s
}

// puller returns a new Puller with the records in a folder.
func puller(t *testing.T, dir string, r pull.Runtime, flags ...string) *pull.Puller {
	t.Helper()
	records, err := pull.NewRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}, Records: records}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	p.Verify.Flags(set)
	if err := errors.Join(set.Parse(flags), p.Verify.Check()); err != nil {
		t.Fatal(err)
	}
	return p
}

// asks returns the request of a pod for an image.
func asks(name string, policy corev1.PullPolicy, secrets ...*corev1.Secret) pull.Request {
	return pull.Request{Image: name, Policy: policy, Owner: "pod", Note: func(string, string, string) {},
		Secrets: func() ([]*corev1.Secret, error) { return secrets, nil }}
}

// TestWhoMayUsePulledImages checks that only pods with the secret may use an image that was pulled with it, even after
// a restart.
func TestWhoMayUsePulledImages(t *testing.T) {
	t.Parallel()
	regcred := coordinates(pullSecret("reg.example.com", "u", "secret"), "team", "regcred", "1")
	images := []*corev1.Secret{
		coordinates(pullSecret("reg.example.com", "u", "secret"), "other", "copy", "2"),
		coordinates(pullSecret("reg.example.com", "u", "rotated"), "team", "regcred", "1"),
		coordinates(pullSecret("reg.example.com", "u", "rotated"), "team", "regcred", "3"),
		coordinates(pullSecret("else.example.com", "u", "secret"), "team", "else", "4"),
	}
	for name, c := range map[string]struct {
		image   string
		secrets []*corev1.Secret
		flags   []string
		may     bool
	}{
		"the same secret":                 {image: private, secrets: []*corev1.Secret{regcred}, may: true},
		"a copy of the secret":            {image: private, secrets: images[:1], may: true},
		"the secret with a new password":  {image: private, secrets: images[1:2], may: true},
		"another secret of the same name": {image: private, secrets: images[2:3]},
		"a secret of another registry":    {image: private, secrets: images[3:]},
		"no secret":                       {image: private},
		"public, no secret":               {image: public, may: true},
		"preloaded, no secret":            {image: "preloaded:1", may: true},
		"interrupted pull, no secret":     {image: "docker.io/library/interrupted:1"},
		"the same under a short name":     {image: "interrupted:1"},
		"NeverVerify": {image: private,
			flags: []string{"--image-pull-credentials-verification-policy=NeverVerify"}, may: true},
		"AlwaysVerify, preloaded": {image: "preloaded:1",
			flags: []string{"--image-pull-credentials-verification-policy=AlwaysVerify"}},
		"AlwaysVerify, public": {image: public,
			flags: []string{"--image-pull-credentials-verification-policy=AlwaysVerify"}, may: true},
		"allowlist, name": {image: private, may: true,
			flags: []string{"--image-pull-credentials-verification-policy=NeverVerifyAllowlistedImages",
				"--preloaded-images-verification-allowlist=reg.example.com/a"}},
		"allowlist, prefix": {image: private, may: true,
			flags: []string{"--image-pull-credentials-verification-policy=NeverVerifyAllowlistedImages",
				"--preloaded-images-verification-allowlist=x,reg.example.com/*"}},
		"allowlist, preloaded but not listed": {image: "preloaded:1",
			flags: []string{"--image-pull-credentials-verification-policy=NeverVerifyAllowlistedImages",
				"--preloaded-images-verification-allowlist=reg.example.com/*"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := &registry{
				here:  map[string]bool{"preloaded:1": true, "interrupted:1": true, "docker.io/library/interrupted:1": true},
				there: map[string]string{private: "secret", public: ""},
			}
			before := puller(t, dir, r)
			for _, q := range []pull.Request{asks(private, corev1.PullIfNotPresent, regcred),
				asks(public, corev1.PullIfNotPresent)} {
				if img, err := before.Pull(t.Context(), q); err != nil || img == nil {
					t.Fatal(img, err)
				}
			}
			interrupt(t, dir, r)
			p := puller(t, dir, r, c.flags...)
			img, err := p.Present(t.Context(), asks(c.image, corev1.PullIfNotPresent, c.secrets...))
			if (img != nil) != c.may || err != nil {
				t.Errorf("IfNotPresent: %v, %v", img, err)
			}
			img, err = p.Present(t.Context(), asks(c.image, corev1.PullNever, c.secrets...))
			if (img != nil) != c.may || (err == nil) != c.may || !c.may && reason(err) != pull.ReasonNever {
				t.Errorf("Never: %v, %v", img, err)
			}
			secretless(t, dir)
		})
	}
}

// interrupt leaves the records of a process that was killed during a pull.
func interrupt(t *testing.T, dir string, r *registry) {
	t.Helper()
	names := []string{"interrupted:1", "docker.io/library/interrupted:1"}
	for _, name := range names {
		delete(r.here, name)
	}
	p := puller(t, dir, hanging{r, func() {
		for _, name := range names {
			r.here[name] = true
		}
		if err := os.CopyFS(filepath.Join(dir, "copy"), os.DirFS(filepath.Join(dir, "pulling"))); err != nil {
			t.Error(err)
		}
	}})
	if _, err := p.Pull(t.Context(), asks("interrupted:1", corev1.PullAlways)); err == nil {
		t.Fatal("the pull succeeded")
	}
	if left, _ := os.ReadDir(filepath.Join(dir, "pulling")); len(left) != 0 {
		t.Fatalf("%d records of running pulls after the failure", len(left))
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "pulling")), os.Rename(filepath.Join(dir, "copy"),
		filepath.Join(dir, "pulling"))); err != nil {
		t.Fatal(err)
	}
}

// hanging is a registry whose pulls call during, and fail.
type hanging struct {
	*registry
	during func()
}

func (h hanging) PullImage(context.Context, string, *cri.AuthConfig, *cri.PodSandboxConfig) (string, error) {
	h.during()
	return "", errors.New("the connection broke")
}

// TestPreloadedImageDuringPull checks that other pods can use a preloaded image while a pod pulls it, after that pull
// has failed, and after a power failure during the pull.
func TestPreloadedImageDuringPull(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &registry{here: map[string]bool{"preloaded:1": true}}
	usable := func(p *pull.Puller) {
		img, err := p.Present(t.Context(), asks("preloaded:1", corev1.PullIfNotPresent))
		if img == nil || err != nil {
			t.Errorf("the preloaded image is not usable: %v, %v", img, err)
		}
	}
	var p *pull.Puller
	p = puller(t, dir, hanging{r, func() {
		usable(p)
		usable(puller(t, dir, r))
	}})
	for range 2 {
		if _, err := p.Pull(t.Context(), asks("preloaded:1", corev1.PullAlways)); err == nil {
			t.Error("the pull succeeded")
		}
	}
	usable(p)
}

// secretless checks that the records contain no credentials.
func secretless(t *testing.T, dir string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, path))
		if strings.Contains(string(text), `secret"`) || strings.Contains(string(text), "rotated") {
			t.Errorf("%s contains a password: %s", path, text)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestFailedPullKeepsInterruptedOne checks that a failed pull keeps the record of an earlier, interrupted pull, which
// may have pulled the image.
func TestFailedPullKeepsInterruptedOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := &registry{here: map[string]bool{"interrupted:1": true}, there: map[string]string{}}
	interrupt(t, dir, r)
	for range 2 {
		p := puller(t, dir, r)
		if img, err := p.Present(t.Context(), asks("interrupted:1", corev1.PullIfNotPresent)); img != nil || err != nil {
			t.Fatalf("%v, %v", img, err)
		}
		if _, err := p.Pull(t.Context(), asks("interrupted:1", corev1.PullIfNotPresent)); err == nil {
			t.Fatal("the pull succeeded")
		}
	}
	r.there["interrupted:1"] = ""
	p := puller(t, dir, r)
	if _, err := p.Pull(t.Context(), asks("interrupted:1", corev1.PullIfNotPresent)); err != nil {
		t.Fatal(err)
	}
	if img, err := puller(t, dir, r).Present(t.Context(), asks("interrupted:1", corev1.PullIfNotPresent)); img == nil ||
		err != nil {
		t.Errorf("%v, %v", img, err)
	}
	p.Records.Removed("id of interrupted:1")
	for _, kind := range []string{"pulling", "pulled"} {
		if left, _ := os.ReadDir(filepath.Join(dir, kind)); len(left) != 0 {
			t.Errorf("records left in %s: %v", kind, left)
		}
	}
}

func TestVerificationFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []pull.Verification{
		{Policy: "Sometimes"}, {Listed: []string{"a"}}, {Policy: pull.VerifyNotListed, Listed: []string{"a*"}},
		{Policy: pull.VerifyNotListed, Listed: []string{"/*"}},
		{Policy: pull.VerifyNotListed, Listed: []string{"a:1"}}, {Policy: pull.VerifyNotListed, Listed: []string{" a"}},
		{Policy: pull.VerifyNotListed, Listed: []string{""}},
	} {
		if err := c.Check(); err == nil {
			t.Errorf("Check accepts %+v", c)
		}
	}
}
