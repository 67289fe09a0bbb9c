package pull

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/runtime"
	"monopod/apiserver/kit/backoff"
)

// Runtime contains the methods of runtime.Runtime that a Puller needs.
type Runtime interface {
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
	PullImage(ctx context.Context, image string, auth *cri.AuthConfig, sandbox *cri.PodSandboxConfig) (ref string,
		err error)
}

// Reasons why a container waits for its image, as kubectl shows them.
const (
	ReasonPull        = "ErrImagePull"
	ReasonBackOff     = "ImagePullBackOff"
	ReasonNever       = "ErrImageNeverPull"
	ReasonInspect     = "ImageInspectError"
	ReasonInvalid     = "InvalidImageName"
	ReasonUnavailable = "RegistryUnavailable"
	ReasonSignature   = "SignatureValidationFailed"
)

// Error is the reason why an image is missing, and the time until the next attempt.
type Error struct {
	Reason  string
	Message string
	Retry   time.Duration
}

func (e *Error) Error() string { return e.Message }

// Note records an Event with its type, reason and message.
type Note func(eventType, reason, message string)

// Puller provides images according to their pull policy, with a backoff for each image of each pod.
type Puller struct {
	Runtime    Runtime
	Clock      clock.PassiveClock
	Limits     Limits
	ConfigFile string   // the node's credentials in the format of docker login; empty: there are none
	Metrics    *Metrics // nil: none
	Records    *Records // of the credentials of pulls; nil: every pod may use every image
	Verify     Verification

	mu           sync.Mutex // guards the fields below
	backoff      backoff.Backoff
	failed       map[string]failure
	pulls        map[string]int // number of running pulls by image
	slots        chan struct{}
	ready        bool              // slots is initialized
	importErrors map[string]string // why images of archives were not imported, by full name
}

type failure struct {
	at      time.Time
	message string // with its reason
}

// Request is a container's request for an image.
type Request struct {
	Image  string
	Policy corev1.PullPolicy
	Owner  string // of the backoff: the pod
	// Secrets returns the pod's pull secrets; nil: there are none. It is called only if credentials are needed.
	Secrets func() ([]*corev1.Secret, error)
	Sandbox *cri.PodSandboxConfig
	Note    Note
}

// Present returns the image if it is present, the pod may use it, and the policy does not require a pull. It returns
// nil if the image must be pulled. An error that is not an *Error means that the runtime or the API server is
// unavailable.
func (p *Puller) Present(ctx context.Context, r Request) (*cri.Image, error) {
	if _, err := reference.ParseNormalizedNamed(r.Image); err != nil {
		return nil, r.fail(ReasonInvalid, "InspectFailed",
			fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %[1]q: %v", r.Image, err))
	}
	if r.Policy == corev1.PullAlways {
		return nil, nil
	}
	img, err := p.Runtime.ImageStatus(ctx, WithDefaultTag(r.Image))
	switch {
	case runtime.Lost(err):
		return nil, err
	case err != nil:
		return nil, r.fail(ReasonInspect, "InspectFailed", fmt.Sprintf("Failed to inspect image %q: %v", r.Image, err))
	case img != nil:
		if may, err := p.hasAccess(r, img); may || err != nil {
			return img, err
		}
	}
	if r.Policy == corev1.PullNever { // also if the pod may not use the image: that it is present must not be revealed
		return nil, r.fail(ReasonNever, ReasonNever, p.importError(r.Image)+
			fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image))
	}
	return nil, nil
}

// fail records the Events of an image that no pull can provide, and returns the error.
func (r Request) fail(reason, event, message string) *Error {
	r.Note(corev1.EventTypeWarning, event, message)
	r.Note(corev1.EventTypeWarning, "Failed", "Error: "+reason)
	return &Error{Reason: reason, Message: message, Retry: backoff.Initial}
}

// Pull pulls the image and returns it, unless it is in backoff. It waits for a slot of Limits. An error that is not an
// *Error is not about the image: the caller may retry at once.
func (p *Puller) Pull(ctx context.Context, r Request) (*cri.Image, error) {
	key := r.Owner + "_" + r.Image
	if err := p.checkBackoff(key, r); err != nil {
		return nil, err
	}
	auths, unread, err := p.credentials(r)
	if err != nil {
		return nil, err
	}
	r.Note(corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", r.Image))
	asked := p.Clock.Now()
	p.mu.Lock()
	if !p.ready {
		p.slots, p.ready = p.Limits.slots(), true
	}
	slots := p.slots
	p.mu.Unlock()
	release, err := acquire(ctx, slots)
	if err != nil {
		return nil, err
	}
	defer release()
	p.count(r.Image, 1)
	defer p.count(r.Image, -1)
	began := p.Clock.Now()
	img, err := p.pull(ctx, r, auths, unread)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case runtime.Broken(err):
		return nil, err
	case err != nil:
		return nil, p.pullFailed(key, r, err)
	}
	p.mu.Lock()
	delete(p.failed, key)
	p.backoff.Forget(key)
	p.mu.Unlock()
	took, whole := p.Clock.Since(began).Truncate(time.Millisecond), p.Clock.Since(asked).Truncate(time.Millisecond)
	p.Metrics.pulled(img.Size, whole)
	r.Note(corev1.EventTypeNormal, "Pulled",
		fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", r.Image, took, whole,
			img.Size))
	return img, nil
}

// Pulls returns the images that are being pulled, sorted.
func (p *Puller) Pulls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.pulls))
}

// count changes the number of running pulls of an image.
func (p *Puller) count(image string, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulls == nil {
		p.pulls = map[string]int{}
	}
	if p.pulls[image] += by; p.pulls[image] == 0 {
		delete(p.pulls, image)
	}
}

// pull pulls an image and records the source of the credentials.
func (p *Puller) pull(ctx context.Context, r Request, auths []Credential, unread error) (*cri.Image, error) {
	if p.Records == nil {
		img, _, err := p.try(ctx, r, auths, unread)
		return img, err
	}
	present, err := p.Runtime.ImageStatus(ctx, WithDefaultTag(r.Image))
	if err == nil {
		err = p.Records.begin(r.Image, present)
	}
	if err != nil {
		return nil, err
	}
	img, source, err := p.try(ctx, r, auths, unread)
	if err != nil {
		img = nil
	}
	// As upstream, a pull does not fail because it cannot be recorded.
	if err := p.Records.end(r.Image, img, source); err != nil {
		r.Note(corev1.EventTypeWarning, "Failed", err.Error())
	}
	return img, err
}

// try tries the credentials in order. It returns the image and the source of the credentials with which it was pulled.
func (p *Puller) try(ctx context.Context, r Request, auths []Credential, unread error) (*cri.Image, *Source, error) {
	var errs []error
	for _, auth := range auths {
		ref, err := p.Runtime.PullImage(ctx, WithDefaultTag(r.Image), auth.AuthConfig, r.Sandbox)
		if err == nil {
			img, err := p.pulledImage(ctx, ref, r.Image)
			return img, auth.Source, err
		}
		if runtime.Broken(err) {
			return nil, nil, err
		}
		errs = append(errs, err)
	}
	if unread != nil { // the unreadable secret may contain the right credentials
		errs = append(errs, unread)
	}
	return nil, nil, utilerrors.NewAggregate(errs)
}

// credentials returns the credentials of the pod, then those of the node, or else one without a login, for an anonymous
// pull. unread is the error about secrets and files that cannot be read; err means that the pod's secrets are not
// known.
func (p *Puller) credentials(r Request) (auths []Credential, unread, err error) {
	secrets, err := r.secrets()
	if err != nil {
		return nil, nil, err
	}
	ring, unread := OfSecrets(secrets)
	auths = ring.Lookup(r.Image)
	if p.ConfigFile != "" {
		node, err := OfFile(p.ConfigFile)
		auths, unread = append(auths, node.Lookup(r.Image)...), errors.Join(unread, err)
	}
	if len(auths) == 0 {
		auths = []Credential{{}}
	}
	return auths, unread, nil
}

// pulledImage returns the image that was just pulled.
func (p *Puller) pulledImage(ctx context.Context, ref, name string) (*cri.Image, error) {
	img, err := p.Runtime.ImageStatus(ctx, ref)
	if err == nil && img == nil {
		img, err = p.Runtime.ImageStatus(ctx, WithDefaultTag(name))
	}
	if err == nil && img == nil {
		err = fmt.Errorf("image %q disappeared after its pull", name)
	}
	return img, err
}

// checkBackoff returns an error if the image is in backoff.
func (p *Puller) checkBackoff(key string, r Request) error {
	p.mu.Lock()
	f, ok := p.failed[key]
	rest, _ := p.backoff.Remaining(key, f.at, p.Clock.Now())
	p.mu.Unlock()
	if !ok || rest <= 0 {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q", r.Image)
	r.Note(corev1.EventTypeNormal, "BackOff", message)
	r.Note(corev1.EventTypeWarning, "Failed", "Error: "+ReasonBackOff)
	return &Error{Reason: ReasonBackOff, Retry: rest, Message: message + ": " + f.message}
}

// pullFailed records a failed pull and returns its error.
func (p *Puller) pullFailed(key string, r Request, err error) error {
	now := p.Clock.Now()
	reason, message := reasonAndMessage(r.Image, err)
	refusal := p.importError(r.Image)
	message = refusal + message
	p.mu.Lock()
	p.backoff.Attempt(key, now, now)
	if p.failed == nil {
		p.failed = map[string]failure{}
	}
	p.failed[key] = failure{now, reason + ": " + message}
	p.mu.Unlock()
	r.Note(corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s%v", r.Image, refusal, err))
	r.Note(corev1.EventTypeWarning, "Failed", "Error: "+reason)
	// The short Retry only makes the status change to ImagePullBackOff.
	return &Error{Reason: reason, Message: message, Retry: time.Second}
}

// reasonAndMessage returns the reason and message of a failed pull. The runtime's message may begin with one of two
// other reasons.
func reasonAndMessage(image string, err error) (reason, message string) {
	text := status.Convert(err).Message()
	if rest, ok := strings.CutPrefix(text, ReasonUnavailable); ok {
		return ReasonUnavailable, fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest)
	}
	if rest, ok := strings.CutPrefix(text, ReasonSignature); ok {
		return ReasonSignature, fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest)
	}
	return ReasonPull, err.Error()
}

// Forget drops the failures of an owner.
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

// WithDefaultTag adds the tag latest to an image without tag or digest.
func WithDefaultTag(image string) string {
	rest := image[strings.LastIndex(image, "/")+1:]
	if strings.ContainsAny(rest, ":@") {
		return image
	}
	return image + ":latest"
}
