package agent_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent"
	"monopod/apiserver/kit/client"
)

// inStaticWorld runs a test on a node with a folder of static pods.
func inStaticWorld(t *testing.T, files map[string]string, test func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.beginStatic(files)
		test(w)
	})
}

// beginStatic restarts the agent with a folder of static pods.
func (w *world) beginStatic(files map[string]string) {
	w.Helper()
	w.stop()
	w.adjust = func(c *agent.Config) { c.ManifestDir = filepath.Join(w.dir, "manifests") }
	for name, text := range files {
		w.write(name, text)
	}
	w.startAgent()
}

func (w *world) manifest(name string) string { return filepath.Join(w.dir, "manifests", name) }

func (w *world) write(name, text string) {
	w.Helper()
	if err := errors.Join(os.MkdirAll(w.manifest(""), 0o755),
		os.WriteFile(w.manifest(name), []byte(text), 0o644)); err != nil {
		w.Fatal(err)
	}
	w.touch()
}

func (w *world) remove(name string) {
	w.Helper()
	if err := os.Remove(w.manifest(name)); err != nil {
		w.Fatal(err)
	}
	w.touch()
}

func (w *world) touch() {
	select {
	case w.touched <- struct{}{}:
	default:
	}
}

// staticPod is a manifest of one container.
func staticPod(name string, args ...string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
		"}\nspec: {containers: [{name: c, image: 'web:1', args: ['" + strings.Join(args, "', '") + "']}]}\n"
}

// containerIDs returns the IDs of all containers, including dead ones.
func (w *world) containerIDs() []string {
	w.Helper()
	list, err := w.rt.ListContainers(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	var ids []string
	for _, c := range list {
		ids = append(ids, c.Id)
	}
	slices.Sort(ids)
	return ids
}

func idOf(p *corev1.Pod) string {
	return strings.TrimPrefix(p.Status.ContainerStatuses[0].ContainerID, "containerd://")
}

func TestStaticPodGetsMirror(t *testing.T) {
	inStaticWorld(t,
		map[string]string{"a.yaml": staticPod("a", "serve"), ".b.yaml": staticPod("b"), "c.yaml~": staticPod("c")},
		func(w *world) {
			w.until(time.Second, "a-n1", ready)
			mirror := w.get("a-n1")
			if hash := mirror.Annotations["kubernetes.io/config.mirror"]; len(hash) != 32 ||
				mirror.Annotations["kubernetes.io/config.hash"] != hash ||
				mirror.Annotations["kubernetes.io/config.source"] != "file" {
				t.Errorf("annotations: %v", mirror.Annotations)
			}
			if o := metav1.GetControllerOf(mirror); o == nil || o.Kind != "Node" || o.Name != "n1" {
				t.Errorf("owner: %v", mirror.OwnerReferences)
			}
			if mirror.Spec.PriorityClassName != "system-node-critical" || *mirror.Spec.Priority != 2000001000 {
				t.Errorf("priority: %q %v", mirror.Spec.PriorityClassName, mirror.Spec.Priority)
			}
			if n := len(w.containerIDs()); n != 1 {
				t.Errorf("%d containers run", n)
			}
			var log strings.Builder
			if err := w.a.Logs(w.Context(), mirror, &corev1.PodLogOptions{Container: "c"}, &log); err != nil ||
				!strings.Contains(log.String(), "listens") {
				t.Errorf("logs of the mirror: %q, %v", log.String(), err)
			}
			forged := mirror.DeepCopy()
			forged.Namespace = "other"
			if err := w.a.Logs(w.Context(), forged, &corev1.PodLogOptions{Container: "c"}, io.Discard); err == nil {
				t.Error("a pod that claims to be a mirror pod returns another pod's log")
			}
		})
}

func TestStaticPodOutlivesItsMirror(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		w.until(time.Second, "a-n1", ready)
		before := w.get("a-n1")
		for _, grace := range []int64{0, 30} {
			w.delete("a-n1", grace)
			w.until(time.Second, "a-n1", func(p *corev1.Pod) bool { return ready(p) && p.UID != before.UID })
		}
		if after := w.get("a-n1"); idOf(after) != idOf(before) || after.Status.ContainerStatuses[0].RestartCount != 0 ||
			!after.Status.StartTime.Equal(before.Status.StartTime) {
			t.Errorf("before: %v\nafter: %v", before.Status, after.Status)
		}
	})
}

func TestStaticPodFollowsItsFile(t *testing.T) {
	inStaticWorld(t, nil, func(w *world) {
		w.write("a.yaml", staticPod("a", "serve"))
		w.until(time.Second, "a-n1", ready)
		first := w.get("a-n1")

		w.write("a.yaml", staticPod("a", "serve", "--extra"))
		w.until(time.Minute, "a-n1", func(p *corev1.Pod) bool {
			return ready(p) && p.Annotations["kubernetes.io/config.hash"] != first.Annotations["kubernetes.io/config.hash"]
		})
		second := w.get("a-n1")
		if slices.Contains(w.containerIDs(), idOf(first)) || len(w.containerIDs()) != 1 ||
			len(second.Spec.Containers[0].Args) != 2 {
			t.Errorf("after the edit: containers %v of %v", w.containerIDs(), second.Spec.Containers[0].Args)
		}

		if err := os.Rename(w.manifest("a.yaml"), w.manifest("b.yaml")); err != nil {
			t.Fatal(err)
		}
		// No notification follows, so the agent finds the change when it reads the folder periodically.
		w.until(time.Minute, "a-n1", func(p *corev1.Pod) bool { return ready(p) && idOf(p) != idOf(second) })

		w.remove("b.yaml")
		w.until(time.Minute, "a-n1", gone)
		w.nothingLeft()
	})
}

func TestStaticPodWaitsForPredecessor(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "-ignore-term", "serve")}, func(w *world) {
		w.until(time.Second, "a-n1", ready)
		first := idOf(w.get("a-n1"))
		w.write("a.yaml", staticPod("a", "serve"))
		w.after(29 * time.Second)
		if got := w.containerIDs(); len(got) != 1 || got[0] != first {
			t.Fatalf("while the old pod terminates, the containers are %v, want only %v", got, first)
		}
		w.write("a.yaml", staticPod("a", "-ignore-term", "serve")) // the first manifest again, while its pod still terminates
		w.until(10*time.Second, "a-n1", func(p *corev1.Pod) bool { return ready(p) && idOf(p) != first })
		if got := w.containerIDs(); len(got) != 1 || w.get("a-n1").Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("containers %v", got)
		}
	})
}

func TestStaticPodRemovedAndPutBack(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve")}, func(w *world) {
		w.until(time.Second, "a-n1", ready)
		first := w.get("a-n1")
		w.remove("a.yaml")
		w.after(manifestSeen)
		w.write("a.yaml", staticPod("a", "serve"))
		w.until(time.Minute, "a-n1",
			func(p *corev1.Pod) bool { return ready(p) && p.UID != first.UID && idOf(p) != idOf(first) })
	})
}

// manifestSeen is the time within which the agent reads a changed file.
const manifestSeen = 150 * time.Millisecond

func TestBrokenManifests(t *testing.T) {
	inStaticWorld(t,
		map[string]string{"a.yaml": staticPod("a", "serve"), "b.yaml": "}", "c.yaml": staticPod("C_"),
			"d.yaml": staticPod("a", "other")}, func(w *world) {
			w.until(time.Second, "a-n1", ready)
			before := w.get("a-n1")
			w.after(time.Minute) // the agent reads the folder three more times
			for _, c := range []struct{ file, want string }{
				{"b.yaml", "cannot be read"}, {"c.yaml", "metadata.name: Invalid value"},
				{"d.yaml", "pod default/a-n1 is already defined by a.yaml"},
			} {
				events := slices.DeleteFunc(w.recorded(), func(e string) bool { return !strings.Contains(e, c.file) })
				if len(events) != 1 || !strings.Contains(events[0], "Warning n1 FailedValidation: ") ||
					!strings.Contains(events[0], c.want) {
					t.Errorf("%s: events %q, want %q once", c.file, events, c.want)
				}
			}
			w.write("a.yaml", "apiVersion: v1\nkind: P")
			w.after(time.Minute)
			if after := w.get("a-n1"); !ready(after) || idOf(after) != idOf(before) {
				t.Errorf("an invalid file stopped its pod: %v", after)
			}
			w.remove("a.yaml")
			w.until(time.Minute, "a-n1", func(p *corev1.Pod) bool { return p != nil && p.Spec.Containers[0].Args[0] == "other" })
		})
}

func TestStaticPodAdopted(t *testing.T) {
	inStaticWorld(t,
		map[string]string{"a.yaml": staticPod("a", "serve"),
			"job.yaml": strings.Replace(staticPod("job", "exit", "0"), "spec: {", "spec: {restartPolicy: Never, ", 1)},
		func(w *world) {
			w.until(time.Second, "a-n1", ready)
			w.until(time.Second, "job-n1", succeeded)
			before := w.get("a-n1")
			w.after(time.Minute)
			w.stop()
			w.startAgent()
			w.after(time.Minute)
			after := w.get("a-n1")
			if after.UID != before.UID || after.ResourceVersion != before.ResourceVersion || idOf(after) != idOf(before) {
				t.Errorf("before: %v\nafter: %v", before, after)
			}
			if job := w.get("job-n1"); !succeeded(job) || len(w.containerIDs()) != 2 {
				t.Errorf("the job ran again: %v", job.Status)
			}
		})
}

func succeeded(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodSucceeded }

func TestStaticPodEditedWhileAway(t *testing.T) {
	inStaticWorld(t, map[string]string{"a.yaml": staticPod("a", "serve"), "b.yaml": staticPod("b", "serve")},
		func(w *world) {
			w.until(time.Second, "a-n1", ready)
			w.until(time.Second, "b-n1", ready)
			first := idOf(w.get("a-n1"))
			w.stop()
			w.remove("b.yaml")
			w.write("a.yaml", staticPod("a", "serve", "--extra"))
			w.startAgent()
			w.until(time.Minute, "b-n1", gone)
			w.until(time.Minute, "a-n1", func(p *corev1.Pod) bool { return ready(p) && idOf(p) != first })
			if got := w.containerIDs(); len(got) != 1 {
				t.Errorf("containers %v", got)
			}
		})
}

func TestStaticPodWithoutAPI(t *testing.T) {
	inStaticWorld(t, nil, func(w *world) {
		w.write("a.yaml", strings.Replace(staticPod("a", "serve"), "{name: a}", "{name: a, namespace: later}", 1))
		w.after(time.Second)
		if n := len(w.containerIDs()); n != 1 {
			t.Fatalf("%d containers run", n)
		}
		w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "later"}})
		w.after(time.Minute)
		mirror, err := client.Get[*corev1.Pod](w.Context(), w.api, "later", "a-n1")
		if err != nil || !ready(mirror) {
			t.Errorf("mirror: %v, %v", mirror, err)
		}
	})
}

func TestMirrorWithoutStaticPod(t *testing.T) {
	inStaticWorld(t, nil, func(w *world) {
		p := pod("fraud")
		p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		w.create(p)
		w.until(time.Second, "fraud", gone)
		if n := len(w.containerIDs()); n != 0 {
			t.Errorf("%d containers run", n)
		}
	})
}
