package images_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"monopod/agent/images/pull"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/images"
	"monopod/agent/pod/pace"
)

// registry is a puller of images and a runtime with the images in present.
type registry struct {
	pulls   int
	err     error
	present map[string]*cri.Image
}

func (r *registry) Present(_ context.Context, q pull.Request) (*cri.Image, error) {
	return r.present[q.Image], nil
}

func (r *registry) Pull(_ context.Context, q pull.Request) (*cri.Image, error) {
	time.Sleep(time.Second)
	if r.pulls++; r.err != nil {
		return nil, r.err
	}
	return &cri.Image{Id: "id of " + q.Image}, nil
}

func (r *registry) Forget(string) {}

func (r *registry) Version(context.Context) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v1.6.0"}, nil
}

func (r *registry) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	return &cri.Image{Id: name}, nil
}

// bring calls Ensure until it returns an image or no retry is due, and returns the duration.
func bring(t *testing.T, r *registry, pod *corev1.Pod) (*cri.Image, *pace.Blocked, time.Duration) {
	t.Helper()
	imported := make(chan struct{})
	close(imported)
	results := make(chan func(*images.Images), 1)
	s := images.New(&images.Node{
		Runtime: r, Puller: r, Clock: clock.RealClock{}, Imported: func() <-chan struct{} { return imported },
		Changed: func() {}, Unavailable: func() {}, Failed: func(string, string) {},
	}, &identity.Pod{Life: t.Context(), Log: zap.NewNop(), Event: func(string, string, string, string, ...any) {}},
		func(key string, result images.Result) { results <- func(s *images.Images) { s.Pulled(key, result) } })
	defer s.Wait()
	began := time.Now()
	for {
		img, err := s.Ensure(t.Context(), pod, &pod.Spec.Containers[0], func() *cri.PodSandboxConfig { return nil })
		b := &pace.Blocked{}
		if err == nil || !errors.As(err, &b) || b.Reason != "" {
			return img, b, time.Since(began)
		}
		(<-results)(s)
	}
}

func TestBring(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web"}}}}
	synctest.Test(t, func(t *testing.T) {
		r := &registry{present: map[string]*cri.Image{"web": {Id: "here"}}}
		if img, _, took := bring(t, r, pod); img.GetId() != "here" || r.pulls != 0 || took != 0 {
			t.Errorf("present: %v after %v", img, took)
		}
		r = &registry{}
		if img, _, took := bring(t, r, pod); img.GetId() != "id of web" || r.pulls != 1 || took != time.Second {
			t.Errorf("pulled: %v after %v and %d pulls", img, took, r.pulls)
		}
		r = &registry{err: &pull.Error{Reason: "ErrImagePull", Message: "no such image", Retry: 10 * time.Second}}
		if img, b, _ := bring(t, r, pod); img != nil || b.Reason != "ErrImagePull" || b.Retry != 10*time.Second {
			t.Errorf("failed pull: %v, %+v", img, b)
		}
	})
}

// never is a puller for the policy Never: the runtime has the images before, and after the import the images after.
type never struct {
	registry
	before, after map[string]*cri.Image
	imported      chan struct{}
}

func (n *never) Present(ctx context.Context, q pull.Request) (*cri.Image, error) {
	if img, _ := n.ImageStatus(ctx, q.Image); img != nil {
		return img, nil
	}
	return nil, &pull.Error{Reason: pull.ReasonNever, Retry: 10 * time.Second}
}

func (n *never) ImageStatus(_ context.Context, name string) (*cri.Image, error) {
	select {
	case <-n.imported:
		return n.after[name], nil
	default:
		return n.before[name], nil
	}
}

// TestNeverWaitsForArchives checks that a missing image with the policy Never fails only after the import of archives
// at the start, and that a present image does not wait.
func TestNeverWaitsForArchives(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1", ImagePullPolicy: corev1.PullNever}}},
	}
	here := map[string]*cri.Image{"web:1": {Id: "here"}}
	for name, c := range map[string]struct {
		before, after map[string]*cri.Image // the images before and after the import, which takes five seconds
		want          string                // the image or the reason of the failure
		took          time.Duration
	}{
		"present":           {here, here, "here", 0},
		"in an archive":     {nil, here, "here", 5 * time.Second},
		"not in an archive": {nil, nil, pull.ReasonNever, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &never{before: c.before, after: c.after, imported: make(chan struct{})}
			time.AfterFunc(5*time.Second, func() { close(r.imported) })
			results := make(chan images.Result, 1)
			s := images.New(
				&images.Node{
					Runtime:  r,
					Puller:   r,
					Clock:    clock.RealClock{},
					Imported: func() <-chan struct{} { return r.imported },
					Failed:   func(string, string) {},
				},
				&identity.Pod{Life: t.Context(), Log: zap.NewNop(), Event: func(string, string, string, string, ...any) {}},
				func(_ string, result images.Result) { results <- result },
			)
			defer s.Wait()
			began, got := time.Now(), ""
			for got == "" {
				img, err := s.Ensure(t.Context(), pod, &pod.Spec.Containers[0], func() *cri.PodSandboxConfig { return nil })
				b := &pace.Blocked{}
				switch {
				case err == nil:
					got = img.Id
				case errors.As(err, &b) && b.Reason != "":
					got = b.Reason
				default:
					s.Pulled("c", <-results)
				}
			}
			if took := time.Since(began); got != c.want || took != c.took || r.pulls > 0 {
				t.Errorf("%s: %s after %v and %d pulls; want %s after %v", name, got, took, r.pulls, c.want, c.took)
			}
			time.Sleep(10 * time.Second)
		})
	}
}

// A runtime without support for image volumes would silently mount an empty folder, so the agent returns an error.
func TestImageVolumesNeedRuntimeSupport(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "v", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "data:1"}}},
		},
		Containers: []corev1.Container{
			{Name: "c", Image: "web", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}},
		},
	}}
	if _, b, _ := bring(t, &registry{}, pod); b.Reason != "ImageVolumeMountFailed" || b.Retry != pace.Config {
		t.Errorf("the container is blocked by %+v", b)
	}
	if got := images.VolumeImages(pod); len(got) != 1 || got[0] != "docker.io/library/data:1" {
		t.Error("images of volumes: ", got)
	}
}

// TestFindPresent checks that FindPresent returns only images that Puller.Present returns.
func TestFindPresent(t *testing.T) {
	t.Parallel()
	r := &registry{present: map[string]*cri.Image{"web": {Id: "here"}}}
	s := images.New(&images.Node{Puller: r}, &identity.Pod{Event: func(string, string, string, string, ...any) {}}, nil)
	found := s.FindPresent(
		t.Context(),
		&corev1.Pod{},
		[]*corev1.Container{{Name: "a", Image: "web"}, {Name: "b", Image: "private"}},
	)
	if len(found) != 1 || found["a"].GetId() != "here" {
		t.Error("found: ", found)
	}
}
