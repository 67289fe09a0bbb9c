package agent

import (
	"context"
	"fmt"
	"strings"

	"github.com/distribution/reference"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"monopod/agent/pod/env"
	"monopod/agent/runtime/abilities"
)

// bringImages brings what a container's image volumes show, which the runtime must
// be able to mount, and then its own image, which it returns. All of them are
// pulled at once.
func (w *worker) bringImages(ctx context.Context, c *corev1.Container) (*cri.Image, error) {
	shown := w.imageVolumes(c)
	if len(shown) == 0 {
		return w.image(ctx, needOf(c))
	}
	if err := w.canShow(ctx, c); err != nil {
		return nil, err
	}
	var first error
	for _, n := range shown {
		if _, err := w.image(ctx, n); err != nil && first == nil {
			first = err
		}
	}
	img, err := w.image(ctx, needOf(c))
	if first != nil {
		return nil, first
	}
	return img, err
}

// imageVolumes are the needs of the image volumes that a container mounts. They
// are met once for all the pod's containers: what a volume shows does not change.
func (w *worker) imageVolumes(c *corev1.Container) []need {
	var out []need
	for i := range w.pod.Spec.Volumes {
		v := &w.pod.Spec.Volumes[i]
		if v.Image != nil && mountsVolume(c, v.Name) {
			out = append(out, need{key: shownBy(v.Name), container: c.Name, image: v.Image.Reference, policy: v.Image.PullPolicy})
		}
	}
	return out
}

func mountsVolume(c *corev1.Container, name string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == name {
			return true
		}
	}
	return false
}

// shownBy is the key of a volume's image, which is no container's name.
func shownBy(volume string) string { return "volume/" + volume }

// shown are the IDs of the images that the pod's volumes show, as far as they have
// been brought.
func (w *worker) shown() map[string]string {
	var out map[string]string
	for i := range w.pod.Spec.Volumes {
		name := w.pod.Spec.Volumes[i].Name
		if s := w.images[shownBy(name)]; s != nil && s.image != nil {
			if out == nil {
				out = map[string]string{}
			}
			out[name] = s.image.Id
		}
	}
	return out
}

// forgetImages has all that a container needs looked for again.
func (w *worker) forgetImages(c *corev1.Container) {
	delete(w.images, c.Name)
	for _, n := range w.imageVolumes(c) {
		delete(w.images, n.key)
	}
}

// canShow says why the runtime cannot mount images: it would show an empty folder,
// and say nothing.
func (w *worker) canShow(ctx context.Context, c *corev1.Container) error {
	v, err := w.a.Runtime.Version(ctx)
	if err != nil {
		return err
	}
	if err := abilities.MountsImages(v); err != nil {
		return w.refuseStart(c, crierrors.ErrImageVolumeMountFailed.Error(), fmt.Errorf("image volumes are not supported by this node: %w", err))
	}
	return nil
}

// whyNotCreated is the reason in the status of a container that the runtime did not
// make. What an error begins with says it: containerd (CreateContainer in
// internal/cri/server of 2.4) puts words of its own before CRI's.
func whyNotCreated(err error) string {
	failed := crierrors.ErrImageVolumeMountFailed.Error()
	text := strings.TrimPrefix(grpcstatus.Convert(err).Message(), "failed to mount image volume: ")
	if strings.HasPrefix(text, failed+": ") {
		return failed
	}
	return "CreateContainerError"
}

// canName says why the runtime cannot bring devices that are named by CDI.
func (w *worker) canName(ctx context.Context, devices []*cri.CDIDevice) error {
	if len(devices) == 0 {
		return nil
	}
	v, err := w.a.Runtime.Version(ctx)
	if err != nil || abilities.Of(v).CDI {
		return err
	}
	return fmt.Errorf("%w: CDI device %q cannot be had: %s %s cannot be told of CDI, containerd 2.0 and later can", env.ErrConfig, devices[0].Name, v.RuntimeName, v.RuntimeVersion)
}

// shownImages are the images of all pods' volumes, by their full names. The pods'
// containers, which the runtime tells of, do not name them.
func (a *Agent) shownImages() []string {
	var out []string
	for _, w := range a.all() {
		for _, v := range w.current.Load().Spec.Volumes {
			if v.Image == nil {
				continue
			}
			if full, err := reference.ParseDockerRef(v.Image.Reference); err == nil {
				out = append(out, full.String())
			}
		}
	}
	return out
}
