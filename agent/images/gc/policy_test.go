package gc_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/images/gc"
	"monopod/agent/podapi/status"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// podOf returns a pod with container instances such as "a0- a1- a2+": the name of the container, the attempt, and the
// state: running (+), exited (-) or created (.). Each instance exited a minute after the previous one.
func podOf(uid, instances string, more ...func(*gc.Pod)) gc.Pod {
	p := gc.Pod{UID: types.UID(uid), Observed: &status.Observed{}}
	for i, word := range strings.Fields(instances) {
		c := status.Container{
			ID: uid + "/" + word[:len(word)-1], Name: word[:1], Attempt: uint32(word[1] - '0'),
			State: map[byte]status.State{'+': status.Running, '-': status.Exited, '.': status.Created}[word[len(word)-1]],
		}
		if c.State == status.Exited {
			c.FinishedAt = now.Add(time.Duration(i-60) * time.Minute)
		}
		p.Observed.Containers = append(p.Observed.Containers, c)
	}
	for _, m := range more {
		m(&p)
	}
	return p
}

func over(p *gc.Pod) { p.Over = true }
func all(p *gc.Pod)  { p.Over, p.All = true, true }

func TestContainers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy gc.Policy
		pods   []gc.Pod
		want   string
	}{
		"nothing":          {policy: gc.Default()},
		"keep one of each": {policy: gc.Default(), pods: []gc.Pod{podOf("p", "a0- a1- a2+ b0- b1-")}, want: "p/a0 p/b0"},
		"keep two of each": {policy: gc.Policy{PerContainer: 2, MaxContainers: -1},
			pods: []gc.Pod{podOf("p", "a0- a1- a2- a3+")}, want: "p/a0"},
		"keep all": {policy: gc.Policy{PerContainer: -1, MaxContainers: -1}, pods: []gc.Pod{podOf("p", "a0- a1- a2-")}},
		"keep no old instances": {policy: gc.Policy{PerContainer: 0, MaxContainers: -1},
			pods: []gc.Pod{podOf("p", "a0- a1- b0- b1+")}, want: "p/a0 p/b0"},
		"terminated pod keeps none": {policy: gc.Policy{PerContainer: 0, MaxContainers: -1},
			pods: []gc.Pod{podOf("p", "a0- a1-", over)}, want: "p/a0 p/a1"},
		"minimum age": {policy: gc.Policy{MinContainerAge: 59 * time.Minute, PerContainer: 0, MaxContainers: -1},
			pods: []gc.Pod{podOf("p", "a0- a1- a2- a3+")}, want: "p/a0 p/a1"},
		"never started": {policy: gc.Default(), pods: []gc.Pod{podOf("p", "a0- a1. a2+ b0.")}, want: "p/a0"},
		"all dead containers of a pod": {policy: gc.Default(), pods: []gc.Pod{podOf("p", "a0- a1- b0. c0+", all),
			podOf("q", "a0-")}, want: "p/a0 p/a1 p/b0"},
		"maximum over all pods": {policy: gc.Policy{PerContainer: -1, MaxContainers: 4},
			pods: []gc.Pod{podOf("p", "a0- a1- a2- a3+"), podOf("q", "a0- a1- a2+")}, want: "p/a0"},
		"maximum, at least one of each": {policy: gc.Policy{PerContainer: -1, MaxContainers: 1},
			pods: []gc.Pod{podOf("p", "a0- a1- a2+"), podOf("q", "a0+ a1- a2+")}, want: "p/a0 p/a1"},
		"maximum, oldest first": {policy: gc.Policy{PerContainer: 1, MaxContainers: 1},
			pods: []gc.Pod{podOf("p", "a0-", over), podOf("q", "b0+ a0-", over)}, want: "p/a0"},
		"never a needed one": {policy: gc.Policy{PerContainer: 1, MaxContainers: 0}, pods: []gc.Pod{podOf("p", "a0-"),
			podOf("q", "a0- a1+")}, want: "q/a0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, c := range c.policy.Containers(c.pods, now) {
				if !strings.HasPrefix(c.ID, string(c.Pod)+"/") {
					t.Errorf("container %s belongs to pod %s", c.ID, c.Pod)
				}
				got = append(got, c.ID)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestSandboxes(t *testing.T) {
	t.Parallel()
	seen := &status.Observed{
		Sandboxes:  []status.Sandbox{{ID: "0"}, {ID: "1", Attempt: 1}, {ID: "2", Attempt: 2}, {ID: "3", Attempt: 3}},
		Containers: []status.Container{{ID: "c", SandboxID: "1"}},
	}
	if got := gc.Sandboxes(gc.Pod{Observed: seen}); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("sandboxes of a pod: %v", got)
	}
	if got := gc.Sandboxes(gc.Pod{Observed: seen, All: true}); !slices.Equal(got, []string{"0", "2", "3"}) {
		t.Errorf("all sandboxes of a pod: %v", got)
	}
	seen.Sandboxes[3].Ready = true
	if got := gc.Sandboxes(gc.Pod{Observed: seen, All: true}); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("all sandboxes of a pod with a ready sandbox: %v", got)
	}
}

func img(id string, pinned bool, tags ...string) *cri.Image {
	return &cri.Image{Id: id, Size: 10, Pinned: pinned, RepoTags: tags}
}

func ids(list []gc.Image) string {
	var out []string
	for _, i := range list {
		out = append(out, i.ID)
	}
	return strings.Join(out, " ")
}

func TestImages(t *testing.T) {
	t.Parallel()
	policy := gc.Default()
	policy.ImageMaxAge = time.Hour
	list := []*cri.Image{
		img("a", false, "reg/a:1"),
		img("b", false, "reg/b:1"),
		img("c", false, "reg/c:1"),
		img("pause", true),
		img("disk", false, "local/disk:1"),
	}
	keep := map[string]bool{"local/disk:1": true}
	var m gc.Images
	for _, step := range []struct {
		minute         int
		used           string
		unused, tooOld string
	}{
		{minute: 0, used: "reg/b:1"},
		{minute: 1, used: "a"},
		{minute: 2, unused: "c b a"}, // the least recently used image is first
		{minute: 30, used: "c", unused: "b a"},
		{minute: 60, unused: "b a c"}, // the images were not observed for an hour
		{minute: 61, unused: "b a c", tooOld: "b"},
		{minute: 62, unused: "b a c", tooOld: "b a"},
	} {
		at := now.Add(time.Duration(step.minute) * time.Minute)
		unused := policy.Unused(m.Detect(list, map[string]bool{step.used: true}, keep, at), at)
		if got := ids(unused); got != step.unused {
			t.Errorf("minute %d: unused %q, want %q", step.minute, got, step.unused)
		}
		if got := ids(policy.TooOld(unused, m.Began(), at)); got != step.tooOld {
			t.Errorf("minute %d: too old %q, want %q", step.minute, got, step.tooOld)
		}
	}
	// An image that was removed and pulled again counts as new.
	at := now.Add(2 * time.Hour)
	m.Detect(nil, nil, nil, at)
	if got := ids(policy.Unused(m.Detect(list, nil, keep, at), at)); got != "" {
		t.Errorf("new images are old enough: %s", got)
	}
}

func TestToFree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		high, low         int
		total, free, want int64
	}{
		{85, 80, 1000, 200, 0},
		{85, 80, 1000, 151, 49}, // 84.9 % counts as 85 %, as in upstream
		{85, 80, 1000, 150, 50},
		{85, 80, 1000, 0, 200},
		{100, 80, 1000, 0, 0},
		{1, 0, 1000, 999, 1},
		{1, 0, 1000, 1000, 0},
		{85, 80, 0, 0, 0},
		{85, 80, 1 << 60, 1 << 57, (1<<60)/5 - 1<<57},
	} {
		p := gc.Policy{ImageHigh: c.high, ImageLow: c.low}
		if got := p.ToFree(c.total, c.free); got-c.want > 64 || c.want-got > 64 || c.total <= 1000 && got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                              "<nil>",
		"--image-gc-high-threshold=100": "<nil>",
		"--maximum-dead-containers-per-container=-1": "<nil>",
		"--image-gc-high-threshold=101":              "--image-gc-high-threshold must be between 0 and 100, got 101",
		"--image-gc-low-threshold=85":                "--image-gc-low-threshold: 85 is not below --image-gc-high-threshold, which is 85",
		"--minimum-image-ttl-duration=-1s":           "--minimum-image-ttl-duration must not be negative, got -1s",
		"--image-maximum-gc-age=1m":                  "--image-maximum-gc-age: 1m0s is not above --minimum-image-ttl-duration, which is 2m0s",
		"--container-gc-period=0":                    "--container-gc-period must be positive, got 0s",
		"--minimum-container-ttl-duration=1h":        "<nil>",
		"--image-maximum-gc-age=72h":                 "<nil>",
		"--maximum-dead-containers=100":              "<nil>",
		"--image-gc-low-threshold=-1":                "--image-gc-low-threshold must be between 0 and 100, got -1",
		"--image-gc-period=-1s":                      "--image-gc-period must be positive, got -1s",
	} {
		var p gc.Policy
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		p.Flags(f)
		if err := f.Parse(strings.Fields(args)); err != nil {
			t.Error(err)
			continue
		}
		if got := fmt.Sprint(p.Check()); got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
}
