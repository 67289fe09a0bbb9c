package gc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/images/gc"
	"monopod/agent/podapi/status"
)

// world is a runtime and a node. It records removals and notifications.
type world struct {
	images []*cri.Image
	used   []*cri.Container
	stuck  string // removing this ID fails
	gone   []string
	news   []string
}

func (w *world) remove(id string) error {
	if id == w.stuck {
		return errors.New("stuck")
	}
	w.gone = append(w.gone, id)
	return nil
}

func (w *world) RemoveContainer(_ context.Context, id string) error  { return w.remove(id) }
func (w *world) RemovePodSandbox(_ context.Context, id string) error { return w.remove(id) }
func (w *world) RemoveImage(_ context.Context, id string) error      { return w.remove(id) }
func (w *world) ListImages(context.Context) ([]*cri.Image, error)    { return w.images, nil }
func (w *world) ListContainers(context.Context, *cri.ContainerFilter) ([]*cri.Container, error) {
	return w.used, nil
}
func (w *world) ImagesChanged()                       { w.news = append(w.news, "images") }
func (w *world) Event(_, reason, _ string, _ ...any)  { w.news = append(w.news, reason) }
func (w *world) ContainerRemoved(c *status.Container) { w.news = append(w.news, c.ID) }
func (w *world) SandboxRemoved(id string)             { w.news = append(w.news, id) }

// pod has two terminated instances of one container. The collector skips a pod that is not known.
type pod struct {
	*world
	uid   types.UID
	over  bool
	known bool
}

func (p pod) Garbage() (gc.Pod, bool) {
	seen := &status.Observed{}
	for attempt, id := range []string{"0", "1"} {
		seen.Containers = append(seen.Containers,
			status.Container{ID: string(p.uid) + id, Name: "c", Attempt: uint32(attempt), State: status.Exited})
	}
	return gc.Pod{UID: p.uid, Observed: seen, Over: p.over}, p.known
}

func (w *world) collector(t *testing.T, known bool, pods ...pod) *gc.Collector {
	t.Helper()
	c, err := gc.New(gc.Deps{
		Runtime: w, Node: w, Clock: clocktesting.NewFakeClock(time.Now()), Log: zap.NewNop(),
		Metrics: prometheus.NewRegistry(),
		Pods: func() map[types.UID]gc.RunningPod {
			out := map[types.UID]gc.RunningPod{}
			for _, p := range pods {
				p.world = w
				out[p.uid] = p
			}
			return out
		},
		PodsListed:   func() bool { return known },
		Sweep:        func(context.Context) (int, int) { w.news = append(w.news, "swept"); return 0, 0 },
		Preloaded:    func() map[string]bool { return map[string]bool{"preloaded:1": true} },
		ImageRemoved: func(string) {},
		InUse:        func() []string { return []string{"volume:1"} },
	}, gc.Policy{PerContainer: 1, MaxContainers: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDeadContainers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unknown    bool
		stuck      string
		pods       []pod
		gone, news string
	}{
		"running pod keeps one": {pods: []pod{{uid: "a", known: true}}, gone: "a0", news: "a0 swept"},
		"terminated pod keeps none": {pods: []pod{{uid: "a", known: true, over: true}}, gone: "a0 a1",
			news: "a0 a1 swept"},
		"unobserved pod keeps all": {pods: []pod{{uid: "a"}}, news: "swept"},
		"pods not listed yet":      {unknown: true, pods: []pod{{uid: "a", known: true}}},
		"failed removal": {stuck: "a0", pods: []pod{{uid: "a", known: true}, {uid: "b", known: true}},
			gone: "b0", news: "b0 swept"},
	} {
		w := &world{stuck: c.stuck}
		err := w.collector(t, !c.unknown, c.pods...).DeadContainers(t.Context())
		slices.Sort(w.gone)
		slices.Sort(w.news)
		if gone, news := strings.Join(w.gone, " "), strings.Join(w.news, " "); gone != c.gone || news != c.news ||
			(err != nil) != (c.stuck != "") {
			t.Errorf("%s: removed %q, notifications %q, error %v", name, gone, news, err)
		}
	}
}

func TestUnusedImages(t *testing.T) {
	t.Parallel()
	w := &world{
		images: []*cri.Image{
			{
				Id:       "1",
				RepoTags: []string{"unused:1"},
			}, {Id: "2", RepoTags: []string{"preloaded:1"}}, {Id: "3", RepoTags: []string{"volume:1"}},
			{Id: "4", RepoTags: []string{"made-of:1"}}, {Id: "5"}, {Id: "6", Pinned: true},
		},
		used: []*cri.Container{{Image: &cri.ImageSpec{Image: "made-of:1"}}, {ImageRef: "5"}, {}},
	}
	if err := w.collector(t, true).UnusedImages(t.Context()); err != nil || !slices.Equal(w.gone, []string{"1"}) ||
		!slices.Equal(w.news, []string{"images"}) {
		t.Errorf("removed %v, notifications %v, error %v", w.gone, w.news, err)
	}
	w.stuck = "1"
	if err := w.collector(t, true).UnusedImages(t.Context()); err == nil || len(w.news) != 1 {
		t.Errorf("failed removal of an image: notifications %v, error %v", w.news, err)
	}
}
