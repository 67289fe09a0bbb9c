package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/image"
	"monopod/agent/pod/status"
	"monopod/agent/runtime/cutoff"
	"monopod/apiserver/client"
)

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

// imageState is what is known of an image before a container starts.
type imageState struct {
	image     *cri.Image // present, or pulled
	image.Try            // until then
}

// image returns the image needed. One that must be pulled is, in the background,
// and the worker woken when it has come.
func (w *worker) image(ctx context.Context, n need) (*cri.Image, error) {
	s := w.images[n.key]
	if s == nil {
		s = &imageState{}
		w.images[n.key] = s
	}
	if s.image != nil {
		return s.image, nil
	}
	if why, waits := s.Wait(w.a.Clock.Now()); waits {
		return nil, blockedBy(why)
	}
	present, err := w.a.images.Present(ctx, w.request(n, nil))
	if err != nil {
		return nil, w.imageFailed(s, err)
	}
	if present != nil {
		s.image = present
		w.a.event(w.pod, n.container, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", n.image)
		return present, nil
	}
	if s.Missing() {
		w.pull(n)
	}
	return nil, blockedBy(s.Said())
}

// lookAgain has every missing image looked for at once: some were imported.
func (w *worker) lookAgain() {
	w.a.images.Forget(string(w.uid))
	for _, s := range w.images {
		s.Again()
	}
}

// blockedBy is how a container waits for an image.
func blockedBy(why image.Error) *blocked {
	return &blocked{Waiting: status.Waiting{Reason: why.Reason, Message: why.Message}, retry: why.Retry}
}

func (w *worker) imageFailed(s *imageState, err error) error {
	var e *image.Error
	if !errors.As(err, &e) {
		return err
	}
	s.Failed(e, w.a.Clock.Now())
	return blockedBy(*e)
}

// request is the need as the puller knows it.
func (w *worker) request(n need, secrets []*corev1.Secret) image.Request {
	pod := w.pod
	return image.Request{
		Image: n.image, Policy: n.policy, Owner: string(w.uid), Secrets: secrets,
		Note: func(eventType, reason, message string) { w.a.event(pod, n.container, eventType, reason, "%s", message) },
	}
}

// pull fetches an image on a goroutine of its own.
func (w *worker) pull(n need) {
	r := w.request(n, nil)
	r.Sandbox = w.presentSandbox()
	pod, ctx := w.pod, w.life
	w.a.guard.Go(&w.background, "pull", func() {
		var img *cri.Image
		err := w.guarded("pull", func() (err error) {
			img, err = w.fetch(ctx, pod, r)
			return err
		})
		w.update(func(in *inbox) {
			if in.images == nil {
				in.images = map[string]imageResult{}
			}
			in.images[n.key] = imageResult{img, err}
		})
	})
}

// fetch pulls an image, unless the import of what lies on the disk brings it.
func (w *worker) fetch(ctx context.Context, pod *corev1.Pod, r image.Request) (*cri.Image, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.a.preload.First():
	}
	img, err := w.a.images.Present(ctx, r)
	if img != nil || err != nil {
		return img, err
	}
	if r.Secrets, err = w.pullSecrets(ctx, pod); err != nil {
		return nil, err
	}
	if img, err = w.a.images.Pull(ctx, r); err == nil {
		w.a.node.ImagesChanged()
	}
	return img, err
}

// pulled takes the result of a pull.
func (w *worker) pulled(name string, r imageResult) {
	s := w.images[name]
	if s == nil {
		return
	}
	s.image = cmp.Or(s.image, r.image)
	s.Pulled(r.err, w.a.Clock.Now())
	if s.image == nil && cutoff.Lost(r.err) {
		w.a.node.Poke() // this step pulls again, once the runtime is back
	}
}

// pullSecrets are the secrets the pod names; those that are not there are left out.
func (w *worker) pullSecrets(ctx context.Context, pod *corev1.Pod) ([]*corev1.Secret, error) {
	var out []*corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := (objects{ctx, w.a.Client, pod.Namespace}).Secret(ref.Name)
		if err != nil {
			return nil, fmt.Errorf("imagePullSecrets: %w", err)
		}
		if s == nil {
			w.a.event(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret", "Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", ref.Name)
			continue
		}
		out = append(out, s)
	}
	return out, nil
}

// lookForImages asks for the images of containers about to start, while the
// sandbox is made.
func (w *worker) lookForImages(ctx context.Context, list []*corev1.Container) map[string]imageResult {
	out := map[string]imageResult{}
	for _, c := range list {
		if c.ImagePullPolicy == corev1.PullAlways {
			continue
		}
		img, err := w.a.Runtime.ImageStatus(ctx, image.Named(c.Image))
		if err == nil && img != nil {
			out[c.Name] = imageResult{image: img}
			w.a.event(w.pod, c.Name, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", c.Image)
		}
	}
	return out
}

// objects reads the ConfigMaps and Secrets of one namespace; nil is one that does
// not exist. It lives as long as one step.
type objects struct {
	ctx       context.Context
	client    client.Client
	namespace string
}

func (o objects) ConfigMap(name string) (*corev1.ConfigMap, error) {
	cm, err := client.Get[*corev1.ConfigMap](o.ctx, o.client, o.namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return cm, err
}

func (o objects) Secret(name string) (*corev1.Secret, error) {
	s, err := client.Get[*corev1.Secret](o.ctx, o.client, o.namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return s, err
}

// imagesArrived tells the node and the pods of images that nobody pulled.
func (a *Agent) imagesArrived() {
	a.node.ImagesChanged()
	for _, w := range a.all() {
		w.update(func(in *inbox) { in.arrived = true })
	}
}
