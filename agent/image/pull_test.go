package image_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/image"
)

// registry is a runtime that can pull what it has, for who is allowed to.
type registry struct {
	here  map[string]bool
	there map[string]string // image to the password it needs
	pulls []string          // the users that asked
}

func (r *registry) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	if r.here[name] {
		return &cri.Image{Id: "id of " + name, Size: 42}, nil
	}
	return nil, nil
}

func (r *registry) PullImage(_ context.Context, name string, auth *cri.AuthConfig, _ *cri.PodSandboxConfig) (string, error) {
	r.pulls = append(r.pulls, auth.GetUsername())
	password, ok := r.there[name]
	if !ok || password != auth.GetPassword() {
		return "", errors.New("denied")
	}
	r.here[name] = true
	return name, nil
}

func reason(err error) string {
	var e *image.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return fmt.Sprint(err)
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &registry{here: map[string]bool{}, there: map[string]string{}}
		p := &image.Puller{Runtime: r, Clock: clock.RealClock{}}
		req := image.Request{Image: "web", Owner: "pod", Note: func(string, string, string) {}}
		var waits []int
		for range 7 {
			if _, err := p.Pull(t.Context(), req); reason(err) != image.ReasonPull {
				t.Fatalf("pull: %v", err)
			}
			_, err := p.Pull(t.Context(), req)
			var e *image.Error
			if !errors.As(err, &e) || e.Reason != image.ReasonBackOff {
				t.Fatalf("in backoff: %v", err)
			}
			waits = append(waits, int(e.Retry.Seconds()))
			time.Sleep(e.Retry)
		}
		if want := []int{10, 20, 40, 80, 160, 300, 300}; !slices.Equal(waits, want) {
			t.Errorf("waits %v, want %v", waits, want)
		}
		r.there["web:latest"] = ""
		if img, err := p.Pull(t.Context(), req); err != nil || img.Id != "id of web:latest" {
			t.Errorf("pull: %v %v", img, err)
		}
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	r := &registry{here: map[string]bool{"web:1": true}}
	p := &image.Puller{Runtime: r, Clock: clock.RealClock{}}
	for _, c := range []struct {
		image  string
		policy corev1.PullPolicy
		found  bool
		reason string
	}{
		{"web:1", corev1.PullIfNotPresent, true, "<nil>"},
		{"web:1", corev1.PullNever, true, "<nil>"},
		{"web:1", corev1.PullAlways, false, "<nil>"},
		{"web:2", corev1.PullIfNotPresent, false, "<nil>"},
		{"web:2", corev1.PullNever, false, image.ReasonNever},
	} {
		img, err := p.Present(t.Context(), image.Request{Image: c.image, Policy: c.policy, Note: func(string, string, string) {}})
		if (img != nil) != c.found || reason(err) != c.reason {
			t.Errorf("%s %s: %v %v", c.image, c.policy, img, err)
		}
	}
}

func pullSecret(server, user, password string) *corev1.Secret {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, server, auth)}}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		image, server string
		fits          bool
	}{
		{"web", "https://index.docker.io/v1/", true}, // as docker login writes it
		{"web", "docker.io", true},
		{"web", "https://index.docker.io", true},
		{"reg.example.com/a/b:1", "reg.example.com", true},
		{"reg.example.com/a/b:1", "https://reg.example.com/", true},
		{"reg.example.com/a/b:1", "reg.example.com/a", true},
		{"reg.example.com/a/b:1", "reg.example.com/c", false},
		{"reg.example.com.evil/a:1", "reg.example.com", false},
		{"localhost:5000/a", "localhost:5000", true},
		{"localhost:5000/a", "docker.io", false},
	} {
		got := image.Credentials(c.image, []*corev1.Secret{pullSecret(c.server, "u", "p:w")})
		if (len(got) == 1) != c.fits {
			t.Errorf("%s for %s: %v", c.server, c.image, got)
		}
		if len(got) == 1 && (got[0].Username != "u" || got[0].Password != "p:w") {
			t.Errorf("%v", got[0])
		}
	}
	r := &registry{here: map[string]bool{}, there: map[string]string{"reg.example.com/a:1": "right"}}
	p := &image.Puller{Runtime: r, Clock: clock.RealClock{}}
	_, err := p.Pull(t.Context(), image.Request{Image: "reg.example.com/a:1", Owner: "pod", Note: func(string, string, string) {}, Secrets: []*corev1.Secret{
		pullSecret("reg.example.com", "first", "wrong"), pullSecret("reg.example.com", "second", "right"),
	}})
	if err != nil || !slices.Equal(r.pulls, []string{"first", "second"}) {
		t.Errorf("%v %v", r.pulls, err)
	}
}
