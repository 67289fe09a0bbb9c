// Package images provides the images of one pod: those of its containers and those of its image volumes.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	"k8s.io/utils/clock"

	"monopod/agent/images/pull"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/pace"
	"monopod/agent/podapi/spec"
	"monopod/agent/podapi/status"
	"monopod/agent/runtime"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
)

// Puller is the node's puller.
type Puller interface {
	Present(ctx context.Context, r pull.Request) (*cri.Image, error)
	Pull(ctx context.Context, r pull.Request) (*cri.Image, error)
	Forget(owner string)
}

// Runtime is the part of the container runtime that this package uses.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
}

// Node contains the dependencies that the images of all pods of a node share.
type Node struct {
	Client  client.Client
	Runtime Runtime
	Puller  Puller
	Clock   clock.PassiveClock
	Guard   *guard.Guard
	// Imported is closed when the archives that existed at start are imported.
	Imported func() <-chan struct{}
	// Changed is called when there is a new image.
	Changed func()
	// Unavailable is called when the runtime did not respond.
	Unavailable func()
	// Failed is called with the type of a container whose image is missing, and the reason, after each attempt.
	Failed func(kind, reason string)
}

// Result is the result of a pull.
type Result struct {
	image *cri.Image
	err   error
}

// Images provides the images of one pod. Only the worker's goroutine may use it, except FindPresent.
type Images struct {
	node   *Node
	pod    *identity.Pod
	done   func(key string, r Result)
	states map[string]*state // by key; nil: none
	pulls  sync.WaitGroup
}

// state is the state of an image before a container starts.
type state struct {
	kind  string     // type of the container
	image *cri.Image // nil until it is present or pulled
	pull.Try
}

// New returns the images of a pod. done is called, on any goroutine, when a pull ends; its result is then passed
// to Pulled.
func New(node *Node, pod *identity.Pod, done func(key string, r Result)) *Images {
	return &Images{node: node, pod: pod, done: done}
}

// need is an image that a container needs: its own, or that of one of its image volumes.
type need struct {
	key       string // among the pod's images
	container string // the container of its events
	image     string
	policy    corev1.PullPolicy
}

// needOf returns a container's need of its image.
func needOf(c *corev1.Container) need {
	return need{key: c.Name, container: c.Name, image: c.Image, policy: c.ImagePullPolicy}
}

// Ensure returns a container's image, and ensures that the images of its image volumes are present. Missing images are
// pulled concurrently. It returns a *pace.Blocked while the container must wait. sandbox returns the config of the
// existing sandbox.
func (s *Images) Ensure(ctx context.Context, pod *corev1.Pod, c *corev1.Container,
	sandbox func() *cri.PodSandboxConfig) (*cri.Image, error) {
	shown := volumesOf(pod, c)
	if len(shown) == 0 {
		return s.ensure(ctx, pod, needOf(c), sandbox)
	}
	if err := s.canMount(ctx, pod, c); err != nil {
		return nil, err
	}
	var first error
	for _, n := range shown {
		if _, err := s.ensure(ctx, pod, n, sandbox); err != nil && first == nil {
			first = err
		}
	}
	img, err := s.ensure(ctx, pod, needOf(c), sandbox)
	if first != nil {
		return nil, first
	}
	return img, err
}

// ensure returns the needed image. It pulls a missing one in the background; the end of the pull wakes the worker.
func (s *Images) ensure(ctx context.Context, pod *corev1.Pod, n need,
	sandbox func() *cri.PodSandboxConfig) (*cri.Image, error) {
	st := s.states[n.key]
	if st == nil {
		st = &state{kind: spec.Type(pod, n.container)}
		s.set(n.key, st)
	}
	if st.image != nil {
		return st.image, nil
	}
	if why, waits := st.Wait(s.node.Clock.Now()); waits {
		return nil, blocked(why)
	}
	r := s.request(pod, n)
	if s.mayBeImported(ctx, n) {
		if st.Missing() {
			s.pull(n, r, sandbox) // waits for the imports, and then finds the image or fails
		}
		return nil, blocked(st.LastError())
	}
	present, err := s.node.Puller.Present(ctx, r)
	if e := (*pull.Error)(nil); errors.As(err, &e) {
		st.Failed(e, s.node.Clock.Now())
		s.node.Failed(st.kind, e.Reason)
		return nil, blocked(*e)
	}
	if err != nil {
		return nil, err
	}
	if present != nil {
		st.image = present
		s.pod.Event(n.container, corev1.EventTypeNormal, "Pulled",
			"Container image %q already present on machine and can be accessed by the pod", n.image)
		return present, nil
	}
	if st.Missing() {
		s.pull(n, r, sandbox)
	}
	return nil, blocked(st.LastError())
}

// mayBeImported reports whether an image that must not be pulled is missing while the archives are still being
// imported.
func (s *Images) mayBeImported(ctx context.Context, n need) bool {
	if n.policy != corev1.PullNever {
		return false
	}
	select {
	case <-s.node.Imported():
		return false
	default:
	}
	img, err := s.node.Runtime.ImageStatus(ctx, pull.WithDefaultTag(n.image))
	return err == nil && img == nil
}

func (s *Images) set(key string, st *state) {
	if s.states == nil {
		s.states = map[string]*state{}
	}
	s.states[key] = st
}

// blocked returns why and how long a container waits for an image.
func blocked(why pull.Error) *pace.Blocked {
	return &pace.Blocked{Waiting: status.Waiting{Reason: why.Reason, Message: why.Message}, Retry: why.Retry}
}

// request returns the puller's request for the need.
func (s *Images) request(pod *corev1.Pod, n need) pull.Request {
	return pull.Request{
		Image: n.image, Policy: n.policy, Owner: string(s.pod.UID),
		Secrets: sync.OnceValues(func() ([]*corev1.Secret, error) { return s.secrets(s.pod.Life, pod) }),
		Note:    func(eventType, reason, message string) { s.pod.Event(n.container, eventType, reason, "%s", message) },
	}
}

// pull pulls an image on a new goroutine, unless it is imported from an archive.
func (s *Images) pull(n need, r pull.Request, sandbox func() *cri.PodSandboxConfig) {
	r.Sandbox = sandbox()
	s.node.Guard.Go(&s.pulls, "pull", func() {
		var img *cri.Image
		err := s.pod.Call("pull", func() (err error) {
			select {
			case <-s.pod.Life.Done():
				return s.pod.Life.Err()
			case <-s.node.Imported():
			}
			if img, err = s.node.Puller.Present(s.pod.Life, r); img != nil || err != nil {
				return err
			}
			if img, err = s.node.Puller.Pull(s.pod.Life, r); err == nil {
				s.node.Changed()
			}
			return err
		})
		s.done(n.key, Result{img, err})
	})
}

// secrets returns the pod's pull secrets that exist.
func (s *Images) secrets(ctx context.Context, pod *corev1.Pod) ([]*corev1.Secret, error) {
	var out []*corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := client.Get[*corev1.Secret](ctx, s.node.Client, pod.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("imagePullSecrets: %w", err)
		}
		if err != nil {
			s.pod.Warn("FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name)
			continue
		}
		out = append(out, secret)
	}
	return out, nil
}

// Pulled processes the result of a pull.
func (s *Images) Pulled(key string, r Result) {
	st := s.states[key]
	if st == nil {
		return
	}
	st.image = cmp.Or(st.image, r.image)
	st.Pulled(r.err, s.node.Clock.Now())
	if why := st.LastError(); why.Reason != "" {
		s.node.Failed(st.kind, why.Reason)
	}
	if st.image == nil && runtime.Lost(r.err) {
		s.node.Unavailable() // the step after the runtime is back pulls again
	}
}

// FindPresent returns the present images of containers, by container. It may run while the sandbox is created: it
// changes nothing, and SetPresent records its result.
func (s *Images) FindPresent(ctx context.Context, pod *corev1.Pod, list []*corev1.Container) map[string]*cri.Image {
	out := map[string]*cri.Image{}
	for _, c := range list {
		r := s.request(pod, needOf(c))
		r.Note = func(string, string, string) {} // Ensure reports problems
		img, err := s.node.Puller.Present(ctx, r)
		if err == nil && img != nil {
			out[c.Name] = img
			s.pod.Event(c.Name, corev1.EventTypeNormal, "Pulled",
				"Container image %q already present on machine and can be accessed by the pod", c.Image)
		}
	}
	return out
}

// SetPresent records images that are present, by container.
func (s *Images) SetPresent(images map[string]*cri.Image) {
	for name, img := range images {
		s.set(name, &state{image: img})
	}
}

// Recheck makes the next step check every missing image, because some were imported.
func (s *Images) Recheck() {
	s.node.Puller.Forget(string(s.pod.UID))
	for _, st := range s.states {
		st.Again()
	}
}

// Started forgets the image of a started container: the next instance checks again. The map is dropped when it is
// empty, to save memory for idle pods.
func (s *Images) Started(container string) {
	if delete(s.states, container); len(s.states) == 0 {
		s.states = nil
	}
}

// Forget makes the next step check all images that a container needs.
func (s *Images) Forget(pod *corev1.Pod, c *corev1.Container) {
	delete(s.states, c.Name)
	for _, n := range volumesOf(pod, c) {
		delete(s.states, n.key)
	}
}

// Wait waits for the running pulls. The end of the pod's Life cancels them.
func (s *Images) Wait() { s.pulls.Wait() }

// volumesOf returns the image volumes that a container mounts. The containers of a pod share them: the content of a
// volume does not change.
func volumesOf(pod *corev1.Pod, c *corev1.Container) []need {
	var out []need
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		mounts := func(m corev1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image != nil && slices.ContainsFunc(c.VolumeMounts, mounts) {
			out = append(out, need{key: keyOf(v.Name), container: c.Name, image: v.Image.Reference, policy: v.Image.PullPolicy})
		}
	}
	return out
}

// Mounts reports whether a container mounts an image volume.
func Mounts(pod *corev1.Pod, c *corev1.Container) bool { return len(volumesOf(pod, c)) > 0 }

// keyOf returns the key of a volume's image, which no container's name equals.
func keyOf(volume string) string { return "volume/" + volume }

// VolumeImageIDs returns the IDs of the present images of the pod's image volumes, by volume.
func (s *Images) VolumeImageIDs(pod *corev1.Pod) map[string]string {
	var out map[string]string
	for i := range pod.Spec.Volumes {
		name := pod.Spec.Volumes[i].Name
		if st := s.states[keyOf(name)]; st != nil && st.image != nil {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = st.image.Id
		}
	}
	return out
}

// canMount returns an error if the runtime cannot mount images. It would silently mount an empty folder.
func (s *Images) canMount(ctx context.Context, pod *corev1.Pod, c *corev1.Container) error {
	v, err := s.node.Runtime.Version(ctx)
	if err != nil {
		return err
	}
	if err := runtime.MountsImages(v); err != nil {
		text, reason := fmt.Sprintf("image volumes are not supported by this node: %v", err),
			crierrors.ErrImageVolumeMountFailed.Error()
		s.pod.Event(c.Name, corev1.EventTypeWarning, "Failed", "Error: %s", text)
		s.node.Failed(spec.Type(pod, c.Name), reason)
		return &pace.Blocked{Retry: pace.Config, Waiting: status.Waiting{Reason: reason, Message: text}}
	}
	return nil
}

// VolumeImages returns the full names of the images of a pod's image volumes. The runtime only reports the images of
// containers.
func VolumeImages(pod *corev1.Pod) []string {
	var out []string
	for _, v := range pod.Spec.Volumes {
		if v.Image == nil {
			continue
		}
		if full, err := reference.ParseDockerRef(v.Image.Reference); err == nil {
			out = append(out, full.String())
		}
	}
	return out
}
