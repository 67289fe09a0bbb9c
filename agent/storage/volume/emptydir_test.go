package volume_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/volume"
)

func emptyDir(e corev1.EmptyDirVolumeSource) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &e}}
}

// withGroup sets the fsGroup of the pod; nil: none.
func withGroup(facts env.Facts, group *int64) env.Facts {
	facts.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: group}
	return facts
}

func TestEmptyDirMode(t *testing.T) {
	t.Parallel()
	m := needsMounts(t)
	for _, c := range []struct {
		name  string
		v     corev1.EmptyDirVolumeSource
		group *int64
		want  os.FileMode
	}{
		{"default", corev1.EmptyDirVolumeSource{}, nil, 0o777},
		{"fsGroup", corev1.EmptyDirVolumeSource{}, new(int64(4711)), os.ModeSetgid | 0o777},
		{"mode, feature gate off", corev1.EmptyDirVolumeSource{Mode: new(int32(0o1750))}, nil, 0o777},
	} {
		for _, medium := range []corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory} {
			c.v.Medium = medium
			set := volume.Set{Dir: t.TempDir(), Mounter: m}
			facts := withGroup(podWith(emptyDir(c.v)), c.group)
			paths, err := set.Prepare(t.Context(), facts)
			if err != nil {
				t.Fatal(c.name, err)
			}
			info, err := os.Stat(paths["v"])
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode() &^ os.ModeDir; got != c.want || c.group != nil && info.Sys().(*syscall.Stat_t).Gid != 4711 {
				t.Errorf("%s %s: %v", c.name, medium, info.Mode())
			}
			// A second Prepare keeps the changes of a container.
			if err := os.Chmod(paths["v"], 0o500); err != nil {
				t.Fatal(err)
			}
			write(t, paths["v"]+"/kept", "kept")
			if _, err := set.Prepare(t.Context(), facts); err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(paths["v"]); err != nil || info.Mode().Perm() != 0o500 ||
				read(t, paths["v"]+"/kept") != "kept" {
				t.Errorf("%s %s: after the second Prepare: %v, error %v", c.name, medium, info, err)
			}
			if err := set.Teardown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}

// After a kill of the agent while it creates an emptyDir, the next Prepare creates the emptyDir again.
func TestEmptyDirAfterInterruptedSetup(t *testing.T) {
	t.Parallel()
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}}
	mustDir(t, filepath.Join(set.Dir, "volumes/kubernetes.io~empty-dir/.new-v"))
	paths, err := set.Prepare(t.Context(), podWith(emptyDir(corev1.EmptyDirVolumeSource{})))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(paths["v"]); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the emptyDir is %v, error %v", info, err)
	}
	if left, err := os.ReadDir(filepath.Dir(paths["v"])); err != nil || len(left) != 1 {
		t.Errorf("folders: %v, error %v, want one", left, err)
	}
}

func TestMemorySize(t *testing.T) {
	t.Parallel()
	limited := func(limits ...string) []corev1.Container {
		var out []corev1.Container
		for _, l := range limits {
			c := corev1.Container{}
			if l != "" {
				c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(l)}
			}
			out = append(out, c)
		}
		return out
	}
	for _, c := range []struct {
		name       string
		limit      string
		containers []corev1.Container
		want       int64
	}{
		{"memory of the node", "", limited(""), 1 << 30},
		{"limits of all containers", "", limited("64Mi", "64Mi"), 128 << 20},
		{"one container without limit", "", limited("64Mi", ""), 1 << 30},
		{"sizeLimit", "1Mi", limited("64Mi"), 1 << 20},
		{"sizeLimit above the limits of containers", "1Gi", limited("64Mi"), 64 << 20},
		{"limits of containers above the node", "", limited("8Gi"), 1 << 30},
	} {
		m := &mounter{mounted: map[string]int64{}}
		set := volume.Set{Dir: t.TempDir(), Mounter: m}
		v := corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		if c.limit != "" {
			v.SizeLimit = new(resource.MustParse(c.limit))
		}
		facts := podWith(emptyDir(v))
		facts.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
		facts.Pod.Spec.Containers = append(facts.Pod.Spec.Containers[:0:0], c.containers...)
		facts.Pod.Spec.Containers[0].VolumeMounts = mounting("v")
		paths, err := set.Prepare(t.Context(), facts)
		if err != nil || m.mounted[paths["v"]] != c.want {
			t.Errorf("%s: %d, %v, want %d", c.name, m.mounted[paths["v"]], err, c.want)
		}
	}
}

// A volume in memory does not grow beyond its size limit.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	set := volume.Set{Dir: t.TempDir(), Mounter: needsMounts(t)}
	paths, err := set.Prepare(t.Context(),
		podWith(emptyDir(
			corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: new(resource.MustParse("64Ki"))})))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(paths["v"]+"/x", make([]byte, 128<<10), 0o600); err == nil ||
		!strings.Contains(err.Error(), "no space left") {
		t.Errorf("a write of 128 KiB to a volume of 64 KiB returned %v", err)
	}
	if err := set.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
}

// pages is a mounter that records the size of huge pages.
type pages struct {
	mount.Folders
	size int64
}

func (p *pages) Huge(_ string, o mount.Tmpfs) error {
	p.size = o.Page
	return nil
}

func TestHugePages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		medium corev1.StorageMedium
		asked  []corev1.ResourceName
		want   int64
		err    string
	}{
		{"HugePages", []corev1.ResourceName{"hugepages-2Mi"}, 2 << 20, ""},
		{"HugePages-1Gi", []corev1.ResourceName{"hugepages-2Mi", "hugepages-1Gi"}, 1 << 30, ""},
		{"HugePages", []corev1.ResourceName{"hugepages-2Mi", "hugepages-1Gi"}, 0, "only one size of huge pages"},
		{"HugePages", nil, 0, "the pod requests no huge pages"},
		{"HugePages-1Gi", []corev1.ResourceName{"hugepages-2Mi"}, 0,
			"medium HugePages-1Gi: the pod requests no huge pages of this size"},
		{"Paper", nil, 0, `unknown storage medium "Paper"`},
	} {
		m := &pages{}
		set := volume.Set{Dir: t.TempDir(), Mounter: m}
		facts := podWith(emptyDir(corev1.EmptyDirVolumeSource{Medium: c.medium}))
		asked := corev1.ResourceList{}
		for _, name := range c.asked {
			asked[name] = resource.MustParse("1Gi")
		}
		facts.Pod.Spec.Containers = []corev1.Container{{VolumeMounts: mounting("v"),
			Resources: corev1.ResourceRequirements{Requests: asked, Limits: asked}}}
		_, err := set.Prepare(t.Context(), facts)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) ||
			m.size != c.want {
			t.Errorf("%s %v: page size %d, error %v", c.medium, c.asked, m.size, err)
		}
	}
}
