// Package image brings images to the node: archives from the disk, and pulls.
package image

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/backoff"
)

// Runtime is where images are.
type Runtime interface {
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string, err error)
}

// Reasons a container waits for its image, as kubectl shows them.
const (
	ReasonPull    = "ErrImagePull"
	ReasonBackOff = "ImagePullBackOff"
	ReasonNever   = "ErrImageNeverPull"
	ReasonInspect = "ImageInspectError"
)

// Error says why an image is not there, and when to try again.
type Error struct {
	Reason  string
	Message string
	Retry   time.Duration
}

func (e *Error) Error() string { return e.Message }

// Note tells of what a user may want to know: the type, reason and text of an event.
type Note func(eventType, reason, message string)

// Puller brings images by their pull policy, each image of each pod with a backoff
// of its own.
type Puller struct {
	Runtime Runtime
	Clock   clock.PassiveClock

	mu      sync.Mutex // guards what follows
	backoff backoff.Backoff
	failed  map[string]failure
}

type failure struct {
	at      time.Time
	message string
}

// Request is one container's need of an image.
type Request struct {
	Image   string
	Policy  corev1.PullPolicy
	Owner   string // whose backoff it is: the pod
	Secrets []*corev1.Secret
	Sandbox *cri.PodSandboxConfig
	Note    Note
}

// Present answers at once: the image, if it is here and the policy does not ask
// for a pull; nil if it must be pulled.
func (p *Puller) Present(ctx context.Context, r Request) (*cri.Image, error) {
	if r.Policy == corev1.PullAlways {
		return nil, nil
	}
	img, err := p.Runtime.ImageStatus(ctx, Named(r.Image))
	if err != nil {
		return nil, &Error{Reason: ReasonInspect, Message: fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err), Retry: backoff.Initial}
	}
	if img != nil {
		return img, nil
	}
	if r.Policy == corev1.PullNever {
		msg := fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image)
		r.Note(corev1.EventTypeWarning, ReasonNever, msg)
		return nil, &Error{Reason: ReasonNever, Message: msg, Retry: backoff.Initial}
	}
	return nil, nil
}

// Pull pulls the image, unless it failed too short a time ago, and returns it.
func (p *Puller) Pull(ctx context.Context, r Request) (*cri.Image, error) {
	key := r.Owner + "_" + r.Image
	if err := p.waits(key, r); err != nil {
		return nil, err
	}
	r.Note(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	start := p.Clock.Now()
	img, err := p.pull(ctx, r)
	if err != nil && ctx.Err() == nil {
		return nil, p.note(key, r, err)
	}
	if err != nil {
		return nil, ctx.Err()
	}
	p.forget(key)
	took := p.Clock.Since(start).Truncate(time.Millisecond)
	r.Note(corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v. Image size: %d bytes.", r.Image, took, img.Size))
	return img, nil
}

// pull tries every set of credentials, and none at last.
func (p *Puller) pull(ctx context.Context, r Request) (*cri.Image, error) {
	var errs []error
	for _, auth := range append(Credentials(r.Image, r.Secrets), nil) {
		ref, err := p.Runtime.PullImage(ctx, Named(r.Image), auth, r.Sandbox)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		img, err := p.Runtime.ImageStatus(ctx, ref)
		if err == nil && img == nil {
			img, err = p.Runtime.ImageStatus(ctx, Named(r.Image))
		}
		if err == nil && img == nil {
			err = fmt.Errorf("image %q is gone right after its pull", r.Image)
		}
		return img, err
	}
	return nil, errors.Join(errs...)
}

func (p *Puller) waits(key string, r Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.failed[key]
	if !ok {
		return nil
	}
	rest, _ := p.backoff.Remaining(key, f.at, p.Clock.Now())
	if rest <= 0 {
		return nil
	}
	r.Note(corev1.EventTypeNormal, "BackOff", fmt.Sprintf("Back-off pulling image %q", r.Image))
	return &Error{Reason: ReasonBackOff, Retry: rest, Message: fmt.Sprintf("Back-off pulling image %q: %s: %s", r.Image, ReasonPull, f.message)}
}

func (p *Puller) note(key string, r Request, err error) error {
	now := p.Clock.Now()
	message := fmt.Sprintf("failed to pull image %q: %v", r.Image, err)
	p.mu.Lock()
	p.backoff.Attempt(key, now, now)
	if p.failed == nil {
		p.failed = map[string]failure{}
	}
	p.failed[key] = failure{now, message}
	p.mu.Unlock()
	r.Note(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %v", r.Image, err))
	r.Note(corev1.EventTypeWarning, "Failed", "Error: "+ReasonPull)
	// At once again: that attempt only says ImagePullBackOff and how long.
	return &Error{Reason: ReasonPull, Message: message, Retry: time.Second}
}

func (p *Puller) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.failed, key)
	p.backoff.Forget(key)
}

// Forget drops what is known of an owner's failures.
func (p *Puller) Forget(owner string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.failed {
		if strings.HasPrefix(key, owner+"_") {
			delete(p.failed, key)
			p.backoff.Forget(key)
		}
	}
}

// Named gives an image without tag or digest the tag latest.
func Named(image string) string {
	rest := image[strings.LastIndex(image, "/")+1:]
	if strings.ContainsAny(rest, ":@") {
		return image
	}
	return image + ":latest"
}

// dockerConfig is what a pull secret holds.
type dockerConfig struct {
	Auths map[string]struct {
		Username, Password, Auth, IdentityToken, RegistryToken string
	} `json:"auths"`
}

// Credentials are those of secrets that fit the image's registry, in order.
func Credentials(image string, secrets []*corev1.Secret) []*cri.AuthConfig {
	var out []*cri.AuthConfig
	for _, s := range secrets {
		var cfg dockerConfig
		if err := json.Unmarshal(s.Data[corev1.DockerConfigJsonKey], &cfg); err != nil {
			_ = json.Unmarshal(s.Data[corev1.DockerConfigKey], &cfg.Auths)
		}
		for server, a := range cfg.Auths {
			if !serves(server, image) {
				continue
			}
			user, password := a.Username, a.Password
			if plain, err := base64.StdEncoding.DecodeString(a.Auth); err == nil && user == "" {
				user, password, _ = strings.Cut(string(plain), ":")
			}
			out = append(out, &cri.AuthConfig{
				Username: user, Password: password, ServerAddress: server,
				IdentityToken: a.IdentityToken, RegistryToken: a.RegistryToken,
			})
		}
	}
	return out
}

// serves says whether credentials for server, which may be a URL and may go on
// with a path, are for image.
func serves(server, image string) bool {
	if _, rest, ok := strings.Cut(server, "://"); ok {
		server = rest
	}
	server = strings.TrimSuffix(server, "/")
	switch host, _, _ := strings.Cut(server, "/"); host {
	case "index.docker.io", "registry-1.docker.io":
		server = "docker.io"
	}
	full := qualified(image)
	return full == server || strings.HasPrefix(full, server+"/")
}

// qualified puts the default registry before an image that names none.
func qualified(image string) string {
	host, _, found := strings.Cut(image, "/")
	if found && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return image
	}
	if !found {
		image = "library/" + image
	}
	return "docker.io/" + image
}
