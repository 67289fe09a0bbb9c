package pull_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/pull"
	"monopod/agent/runtime/oci"
)

// registry is a runtime that pulls images from a registry with passwords.
type registry struct {
	here  map[string]bool
	there map[string]string // password by image
	pulls []string          // the user of each pull
}

func (r *registry) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	if r.here[name] {
		return &cri.Image{Id: "id of " + name, Size: 42}, nil
	}
	return nil, nil
}

func (r *registry) PullImage(_ context.Context, name string, auth *cri.AuthConfig,
	_ *cri.PodSandboxConfig) (string, error) {
	r.pulls = append(r.pulls, auth.GetUsername())
	password, ok := r.there[name]
	if !ok || password != auth.GetPassword() {
		return "", errors.New("denied")
	}
	r.here[name] = true
	return name, nil
}

func reason(err error) string {
	var e *pull.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return fmt.Sprint(err)
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &registry{here: map[string]bool{}, there: map[string]string{}}
		p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}}
		req := pull.Request{Image: "web", Owner: "pod", Note: func(string, string, string) {}}
		var waits []int
		for range 7 {
			if _, err := p.Pull(t.Context(), req); reason(err) != pull.ReasonPull {
				t.Fatalf("pull: %v", err)
			}
			_, err := p.Pull(t.Context(), req)
			var e *pull.Error
			if !errors.As(err, &e) || e.Reason != pull.ReasonBackOff {
				t.Fatalf("pull during the backoff: %v", err)
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
	p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}}
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
		{"web:2", corev1.PullNever, false, pull.ReasonNever},
	} {
		img, err := p.Present(t.Context(),
			pull.Request{Image: c.image, Policy: c.policy, Note: func(string, string, string) {}})
		if (img != nil) != c.found || reason(err) != c.reason {
			t.Errorf("%s %s: %v %v", c.image, c.policy, img, err)
		}
	}
}

func pullSecret(server, user, password string) *corev1.Secret {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	return &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil,
		`{"auths":{%q:{"auth":%q}}}`, server, auth)}}
}

// Pull tries the credentials of the pod before those of the node, and pulls anonymously only without credentials.
func TestCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, pullSecret("reg.example.com", "node", "secret").Data[corev1.DockerConfigJsonKey],
		0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		image   string
		secrets []*corev1.Secret
		users   string
		fails   string
	}{
		"of the pod": {image: "reg.example.com/a:1",
			secrets: []*corev1.Secret{pullSecret("reg.example.com", "wrong", "?"),
				pullSecret("reg.example.com/a", "right", "secret")}, users: "right"},
		"of the node": {image: "reg.example.com/a:1", users: "node"},
		"of the pod, then the node": {image: "reg.example.com/a:1",
			secrets: []*corev1.Secret{pullSecret("reg.example.com", "wrong",
				"?")}, users: "wrong,node"},
		"of another registry": {image: "else.example.com/a:1", secrets: []*corev1.Secret{pullSecret("reg.example.com", "u",
			"secret")}, users: "", fails: "denied"},
		"unreadable": {image: "else.example.com/a:1", secrets: []*corev1.Secret{pullSecret("else.example.com", "u",
			"secret"), {Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{")}}}, users: "u"},
		"only unreadable": {image: "else.example.com/a:1",
			secrets: []*corev1.Secret{{Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{")}}}, users: "",
			fails: "[denied, image pull secret /: unexpected end of JSON input]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &registry{
				here:  map[string]bool{},
				there: map[string]string{"reg.example.com/a:1": "secret", "else.example.com/a:1": "secret"},
			}
			p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}, ConfigFile: file}
			_, err := p.Pull(
				t.Context(),
				pull.Request{
					Image:   c.image,
					Owner:   "pod",
					Note:    func(string, string, string) {},
					Secrets: func() ([]*corev1.Secret, error) { return c.secrets, nil },
				},
			)
			if strings.Join(r.pulls, ",") != c.users || (err != nil || c.fails != "") && fmt.Sprint(err) != c.fails {
				t.Errorf("pulled as %q: %v", r.pulls, err)
			}
		})
	}
}

// Events and messages are the same as kubelet's.
func TestMessages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &registry{here: map[string]bool{}, there: map[string]string{}}
		p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}}
		var events []string
		req := pull.Request{Image: "web", Owner: "pod", Note: func(kind, reason, message string) {
			events = append(events, kind+" "+reason+": "+message)
		}}
		_, err := p.Pull(t.Context(), req)
		events = append(events, "! "+err.Error())
		_, err = p.Pull(t.Context(), req)
		events = append(events, "! "+err.Error())
		time.Sleep(10 * time.Second)
		r.there["web:latest"] = ""
		if _, err := p.Pull(t.Context(), req); err != nil {
			t.Error(err)
		}
		req.Policy = corev1.PullNever
		req.Image = "other"
		_, err = p.Present(t.Context(), req)
		events = append(events, "! "+err.Error())
		req.Image = "UPPER:case"
		_, err = p.Present(t.Context(), req)
		events = append(events, "! "+reason(err))
		want := []string{
			`Normal Pulling: Pulling image "web"`,
			`Warning Failed: Failed to pull image "web": denied`,
			`Warning Failed: Error: ErrImagePull`,
			`! denied`,
			`Normal BackOff: Back-off pulling image "web"`,
			`Warning Failed: Error: ImagePullBackOff`,
			`! Back-off pulling image "web": ErrImagePull: denied`,
			`Normal Pulling: Pulling image "web"`,
			`Normal Pulled: Successfully pulled image "web" in 0s (0s including waiting). Image size: 42 bytes.`,
			`Warning ErrImageNeverPull: Container image "other" is not present with pull policy of Never`,
			`Warning Failed: Error: ErrImageNeverPull`,
			`! Container image "other" is not present with pull policy of Never`,
			`Warning InspectFailed: Failed to apply default image tag "UPPER:case": couldn't parse image name "UPPER:case": ` +
				`invalid reference format: repository name (library/UPPER) must be lowercase`,
			`Warning Failed: Error: InvalidImageName`,
			`! InvalidImageName`,
		}
		if !slices.Equal(events, want) {
			t.Errorf("events:\n%s", strings.Join(events, "\n"))
		}
	})
}

// slow is a runtime whose pulls take a second.
type slow struct {
	registry
	at, most atomic.Int32
}

func (s *slow) PullImage(_ context.Context, name string, _ *cri.AuthConfig, _ *cri.PodSandboxConfig) (string, error) {
	s.most.Store(max(s.most.Load(), s.at.Add(1)))
	defer s.at.Add(-1)
	time.Sleep(time.Second)
	return name, nil
}

// Pulls returns each image with a running pull once.
func TestPulls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &slow{registry: registry{here: map[string]bool{"web:1": true, "db:1": true}}}
		p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}, Limits: pull.Limits{Parallel: true}}
		var all sync.WaitGroup
		for i, name := range []string{"web:1", "db:1", "web:1"} {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second / 4)
				if _, err := p.Pull(t.Context(), pull.Request{Image: name, Note: func(_, _, _ string) {}}); err != nil {
					t.Error(err)
				}
			})
		}
		for _, want := range []string{"[web:1]", "[db:1 web:1]", "[db:1 web:1]", "[db:1 web:1]", "[db:1 web:1]", "[web:1]",
			"[]"} {
			time.Sleep(240 * time.Millisecond)
			if got := fmt.Sprint(p.Pulls()); got != want {
				t.Errorf("running pulls are %s, want %s", got, want)
			}
		}
		all.Wait()
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for flags, c := range map[string]struct {
		took int
		last string
	}{
		"":                              {6, "in 1s (6s including waiting)"},
		"--serialize-image-pulls":       {6, "in 1s (6s including waiting)"},
		"--serialize-image-pulls=false": {1, "in 1s (1s including waiting)"},
		"--serialize-image-pulls=false --max-parallel-image-pulls=3": {2, "in 1s (2s including waiting)"},
	} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			var limits pull.Limits
			f := pflag.NewFlagSet("", pflag.ContinueOnError)
			limits.Flags(f)
			if err := errors.Join(f.Parse(strings.Fields(flags)), limits.Check()); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				r := &slow{registry: registry{here: map[string]bool{"web:1": true}}}
				p := &pull.Puller{Runtime: r, Clock: clock.RealClock{}, Limits: limits}
				began := time.Now()
				var last atomic.Pointer[string]
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						_, err := p.Pull(
							t.Context(),
							pull.Request{Image: "web:1", Note: func(_, _, message string) { last.Store(&message) }},
						)
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if took := time.Since(began); took != time.Duration(c.took)*time.Second || !strings.Contains(*last.Load(), c.last) {
					t.Errorf("all pulls took %v with at most %d at a time; last message: %s", took, r.most.Load(), *last.Load())
				}
			})
		})
	}
	bad := pull.Limits{MaxParallel: 2}
	if err := bad.Check(); err == nil {
		t.Error("Check accepts a maximum of parallel pulls for serialized pulls")
	}
}

// The errors of a pod that waits for an image name an archive that was built for another platform, until an archive for
// this platform is imported.
func TestRefusedArchive(t *testing.T) {
	t.Parallel()
	const want = "the archive that was imported is built for arm64, this machine is amd64; "
	p := &pull.Puller{Runtime: &registry{here: map[string]bool{}, there: map[string]string{}}, Clock: clock.RealClock{}}
	wrong := &oci.WrongPlatform{Names: []string{"docker.io/library/web:1"}, Has: []string{"arm64"}, Machine: "amd64"}
	if got := wrong.Error(); got != "image docker.io/library/web:1 is built for arm64, this machine is amd64" {
		t.Error(got)
	}
	for _, step := range []struct {
		names []string
		err   error
		want  bool
	}{
		{nil, errors.New("disk full"), false},
		{[]string{"docker.io/library/other:1"}, fmt.Errorf("import a.tar: %w", wrong), true},
		{[]string{"docker.io/library/other:1"}, nil, true},
		{[]string{"docker.io/library/web:1"}, nil, false},
	} {
		p.Imported(step.names, step.err)
		var events []string
		request := pull.Request{
			Image: "web:1",
			Owner: "pod",
			Note:  func(_, _, message string) { events = append(events, message) },
		}
		_, err := p.Pull(t.Context(), request)
		request.Policy = corev1.PullNever
		_, never := p.Present(t.Context(), request)
		for _, text := range []string{err.Error(), never.Error(), strings.Join(events, "\n")} {
			if strings.Contains(text, want) != step.want {
				t.Errorf("after %v, %v: %s", step.names, step.err, text)
			}
		}
		p.Forget("pod")
	}
}
