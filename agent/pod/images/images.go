// Package images brings the images of one pod: those of its containers and those that
// its volumes show.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
	"k8s.io/utils/clock"

	"monopod/agent/images/image"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/pace"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/abilities"
	"monopod/agent/runtime/cutoff"
	"monopod/apiserver/client"
	"monopod/apiserver/process/guard"
)

// Puller is the node's.
type Puller interface {
	Present(ctx context.Context, r image.Request) (*cri.Image, error)
	Pull(ctx context.Context, r image.Request) (*cri.Image, error)
	Forget(owner string)
}

// Runtime is what the runtime is asked for.
type Runtime interface {
	Version(ctx context.Context) (*cri.VersionResponse, error)
	ImageStatus(ctx context.Context, image string) (*cri.Image, error)
}

// Node is what the images of all pods of a node have in common.
type Node struct {
	Client  client.Client
	Runtime Runtime
	Puller  Puller
	Clock   clock.PassiveClock
	Guard   *guard.Guard
	// Imported closes when the archives that lay on the disk at the start are imported.
	Imported func() <-chan struct{}
	// Changed hears that there is a new image.
	Changed func()
	// Lost hears that the runtime did not answer.
	Lost func()
}

// Result is how a pull ended.
type Result struct {
	image *cri.Image
	err   error
}

// Images are those of one pod. It is for the worker's goroutine, but for Look.
type Images struct {
	node   *Node
	pod    *identity.Pod
	done   func(key string, r Result)
	states map[string]*state // by key; nil: none
	pulls  sync.WaitGroup
}

// state is what is known of an image before a container starts.
type state struct {
	image     *cri.Image // present, or pulled
	image.Try            // until then
}

// New are the images of a pod. done hears, on any goroutine, of a pull that ended, which
// is then given to Pulled.
func New(node *Node, pod *identity.Pod, done func(key string, r Result)) *Images {
	return &Images{node: node, pod: pod, done: done}
}

// need is what wants an image: a container for itself, or one of its volumes.
type need struct {
	key       string // among the pod's images
	container string // whose events tell of it
	image     string
	policy    corev1.PullPolicy
}

// needOf is a container's own.
func needOf(c *corev1.Container) need {
	return need{key: c.Name, container: c.Name, image: c.Image, policy: c.ImagePullPolicy}
}

// Bring brings what a container's image volumes show, which the runtime must be able to
// mount, and then its own image, which it returns. All of them are pulled at once. An
// error of type *pace.Blocked says for what the container has to wait. sandbox is the
// config of the sandbox that is there.
func (s *Images) Bring(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox func() *cri.PodSandboxConfig) (*cri.Image, error) {
	shown := volumesOf(pod, c)
	if len(shown) == 0 {
		return s.bring(ctx, pod, needOf(c), sandbox)
	}
	if err := s.canMount(ctx, c); err != nil {
		return nil, err
	}
	var first error
	for _, n := range shown {
		if _, err := s.bring(ctx, pod, n, sandbox); err != nil && first == nil {
			first = err
		}
	}
	img, err := s.bring(ctx, pod, needOf(c), sandbox)
	if first != nil {
		return nil, first
	}
	return img, err
}

// bring returns the image needed. One that must be pulled is, in the background, and
// the worker told when it has come.
func (s *Images) bring(ctx context.Context, pod *corev1.Pod, n need, sandbox func() *cri.PodSandboxConfig) (*cri.Image, error) {
	st := s.states[n.key]
	if st == nil {
		st = &state{}
		s.set(n.key, st)
	}
	if st.image != nil {
		return st.image, nil
	}
	if why, waits := st.Wait(s.node.Clock.Now()); waits {
		return nil, blocked(why)
	}
	present, err := s.node.Puller.Present(ctx, s.request(n))
	if e := (*image.Error)(nil); errors.As(err, &e) {
		st.Failed(e, s.node.Clock.Now())
		return nil, blocked(*e)
	}
	if err != nil {
		return nil, err
	}
	if present != nil {
		st.image = present
		s.pod.Event(n.container, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", n.image)
		return present, nil
	}
	if st.Missing() {
		s.pull(pod, n, sandbox)
	}
	return nil, blocked(st.Said())
}

func (s *Images) set(key string, st *state) {
	if s.states == nil {
		s.states = map[string]*state{}
	}
	s.states[key] = st
}

// blocked is how a container waits for an image.
func blocked(why image.Error) *pace.Blocked {
	return &pace.Blocked{Waiting: status.Waiting{Reason: why.Reason, Message: why.Message}, Retry: why.Retry}
}

// request is the need as the puller knows it.
func (s *Images) request(n need) image.Request {
	return image.Request{
		Image: n.image, Policy: n.policy, Owner: string(s.pod.UID),
		Note: func(eventType, reason, message string) { s.pod.Event(n.container, eventType, reason, "%s", message) },
	}
}

// pull fetches an image on a goroutine of its own.
func (s *Images) pull(pod *corev1.Pod, n need, sandbox func() *cri.PodSandboxConfig) {
	r := s.request(n)
	r.Sandbox = sandbox()
	s.node.Guard.Go(&s.pulls, "pull", func() {
		var img *cri.Image
		err := s.pod.Call("pull", func() (err error) {
			img, err = s.fetch(s.pod.Life, pod, r)
			return err
		})
		s.done(n.key, Result{img, err})
	})
}

// fetch pulls an image, unless the import of what lies on the disk brings it.
func (s *Images) fetch(ctx context.Context, pod *corev1.Pod, r image.Request) (*cri.Image, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.node.Imported():
	}
	img, err := s.node.Puller.Present(ctx, r)
	if img != nil || err != nil {
		return img, err
	}
	if r.Secrets, err = s.secrets(ctx, pod); err != nil {
		return nil, err
	}
	if img, err = s.node.Puller.Pull(ctx, r); err == nil {
		s.node.Changed()
	}
	return img, err
}

// secrets are those that the pod names; those that are not there are left out.
func (s *Images) secrets(ctx context.Context, pod *corev1.Pod) ([]*corev1.Secret, error) {
	var out []*corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := client.Get[*corev1.Secret](ctx, s.node.Client, pod.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("imagePullSecrets: %w", err)
		}
		if err != nil {
			s.pod.Warn("FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name)
			continue
		}
		out = append(out, secret)
	}
	return out, nil
}

// Pulled takes the result of a pull.
func (s *Images) Pulled(key string, r Result) {
	st := s.states[key]
	if st == nil {
		return
	}
	st.image = cmp.Or(st.image, r.image)
	st.Pulled(r.err, s.node.Clock.Now())
	if st.image == nil && cutoff.Lost(r.err) {
		s.node.Lost() // the step that follows pulls again, once the runtime is back
	}
}

// Look asks for the images of containers about to start, while the sandbox is made. It
// changes nothing; Found takes what it returns.
func (s *Images) Look(ctx context.Context, list []*corev1.Container) map[string]*cri.Image {
	out := map[string]*cri.Image{}
	for _, c := range list {
		if c.ImagePullPolicy == corev1.PullAlways {
			continue
		}
		img, err := s.node.Runtime.ImageStatus(ctx, image.Named(c.Image))
		if err == nil && img != nil {
			out[c.Name] = img
			s.pod.Event(c.Name, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", c.Image)
		}
	}
	return out
}

// Found takes over images that are there, by container.
func (s *Images) Found(images map[string]*cri.Image) {
	for name, img := range images {
		s.set(name, &state{image: img})
	}
}

// Arrived has every missing image looked for at once: some were imported.
func (s *Images) Arrived() {
	s.node.Puller.Forget(string(s.pod.UID))
	for _, st := range s.states {
		st.Again()
	}
}

// Started forgets the image of a container that runs: the next instance looks anew.
// A pod at rest keeps no empty map.
func (s *Images) Started(container string) {
	if delete(s.states, container); len(s.states) == 0 {
		s.states = nil
	}
}

// Forget has all that a container needs looked for again.
func (s *Images) Forget(pod *corev1.Pod, c *corev1.Container) {
	delete(s.states, c.Name)
	for _, n := range volumesOf(pod, c) {
		delete(s.states, n.key)
	}
}

// Wait waits for the pulls, which the end of the pod's life ends.
func (s *Images) Wait() { s.pulls.Wait() }

// volumesOf are the needs of the image volumes that a container mounts. They are met
// once for all the pod's containers: what a volume shows does not change.
func volumesOf(pod *corev1.Pod, c *corev1.Container) []need {
	var out []need
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Image != nil && mounts(c, v.Name) {
			out = append(out, need{key: keyOf(v.Name), container: c.Name, image: v.Image.Reference, policy: v.Image.PullPolicy})
		}
	}
	return out
}

// Mounts says whether a container mounts an image volume.
func Mounts(pod *corev1.Pod, c *corev1.Container) bool { return len(volumesOf(pod, c)) > 0 }

func mounts(c *corev1.Container, volume string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == volume {
			return true
		}
	}
	return false
}

// keyOf is the key of a volume's image, which is no container's name.
func keyOf(volume string) string { return "volume/" + volume }

// Shown are the IDs of the images that the pod's volumes show, as far as they have been
// brought.
func (s *Images) Shown(pod *corev1.Pod) map[string]string {
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

// canMount says why the runtime cannot mount images: it would show an empty folder, and
// say nothing.
func (s *Images) canMount(ctx context.Context, c *corev1.Container) error {
	v, err := s.node.Runtime.Version(ctx)
	if err != nil {
		return err
	}
	if err := abilities.MountsImages(v); err != nil {
		text := fmt.Sprintf("image volumes are not supported by this node: %v", err)
		s.pod.Event(c.Name, corev1.EventTypeWarning, "Failed", "Error: %s", text)
		return &pace.Blocked{Retry: pace.Config, Waiting: status.Waiting{Reason: crierrors.ErrImageVolumeMountFailed.Error(), Message: text}}
	}
	return nil
}

// Named are the images of a pod's volumes, by their full names. The pod's containers,
// which the runtime tells of, do not name them.
func Named(pod *corev1.Pod) []string {
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
