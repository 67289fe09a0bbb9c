package volume_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/agent/host/mount"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/volume"
)

// errDead is the error of every call after a kill.
var errDead = errors.New("killed")

// mortal is the kernel of an agent that is killed before or after a step. All later steps fail.
type mortal struct {
	mount.Kernel
	left  int // steps until the kill; negative: no kill
	after bool
	steps int
}

func (m *mortal) step(do func() error) error {
	m.steps++
	switch {
	case m.left < 0:
		return do()
	case m.left == 0 && m.after && m.steps > 0:
		m.after = false
		return errors.Join(do(), errDead)
	case m.left == 0:
		return errDead
	}
	m.left--
	return do()
}

func (m *mortal) Tmpfs(dir string, o mount.Tmpfs) error {
	return m.step(func() error { return m.Kernel.Tmpfs(dir, o) })
}

func (m *mortal) Share(dir string) error { return m.step(func() error { return m.Kernel.Share(dir) }) }
func (m *mortal) Unmount(dir string) error {
	return m.step(func() error { return m.Kernel.Unmount(dir) })
}

func (m *mortal) Bind(fd int, target string) (path string, err error) {
	err = m.step(func() error {
		path, err = m.Kernel.Bind(fd, target)
		return err
	})
	return path, err
}

// life prepares the volumes of a pod with every kind of mount.
func life(t *testing.T, set *volume.Set) error {
	t.Helper()
	facts := podWith(
		emptyDir(corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}),
		corev1.Volume{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
		corev1.Volume{Name: "d", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	)
	facts.Pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{
		{Name: "v", MountPath: "/v", MountPropagation: new(corev1.MountPropagationHostToContainer)},
		{Name: "d", MountPath: "/d", SubPath: "a/b"},
		{Name: "s", MountPath: "/s", SubPath: "k"},
	}}}
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil {
		return err
	}
	mounts, err := set.Mounts(facts.Pod, &facts.Pod.Spec.Containers[0], paths, []env.Var{}, volume.Features{})
	if err != nil {
		return err
	}
	if text, err := os.ReadFile(mounts[2].HostPath); err != nil || string(text) != "v" {
		return fmt.Errorf("the container sees %q: %w", text, err)
	}
	return nil
}

// After a kill of the agent at any step, the next agent completes the volumes of the pod and unmounts them at its end,
// or only unmounts them if the pod no longer exists.
func TestCrashAfterEachStep(t *testing.T) {
	t.Parallel()
	needsMounts(t)
	src := &source{secret: &corev1.Secret{Data: map[string][]byte{"k": []byte("v")}}}
	whole := &mortal{left: -1}
	set := &volume.Set{Dir: t.TempDir(), Mounter: whole, Source: src}
	if err := errors.Join(life(t, set), set.Teardown(t.Context())); err != nil {
		t.Fatal(err)
	}
	if whole.steps < 9 {
		t.Fatalf("only %d steps, want at least 9", whole.steps)
	}
	for i := range 2 * whole.steps {
		dir := mustDir(t, t.TempDir()+"/pod")
		first := &volume.Set{Dir: dir, Mounter: &mortal{left: i / 2, after: i%2 == 1}, Source: src}
		if err := errors.Join(life(t, first), first.Teardown(t.Context())); !errors.Is(err, errDead) {
			t.Errorf("step %d: the agent was not killed: %v", i/2, err)
		}
		next := &volume.Set{Dir: dir, Mounter: mount.Kernel{}, Source: src}
		if i%4 < 2 { // half of the pods still exist
			if err := life(t, next); err != nil {
				t.Errorf("step %d: %v", i/2, err)
			}
		}
		if err := next.Teardown(t.Context()); err != nil {
			t.Errorf("step %d: %v", i/2, err)
		}
		if left := mountsBelow(t, dir); len(left) > 0 {
			t.Errorf("step %d: mounts left: %v", i/2, left)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("step %d: the folder still exists", i/2)
		}
	}
}
