package volume_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/agent/host/mount"
	"monopod/agent/storage/volume"
	api "monopod/apiserver/kit/volume"
)

// iscsi returns a volume type that exists only in this test.
func iscsi() api.Type {
	return api.Type{
		Default: func(v *corev1.VolumeSource) { v.ISCSI.FSType = "ext4" },
		Validate: func(v *corev1.VolumeSource, at *field.Path) field.ErrorList {
			if !strings.HasPrefix(v.ISCSI.IQN, "iqn.") {
				return field.ErrorList{field.Invalid(at.Child("iqn"), v.ISCSI.IQN, "must be an iSCSI name")}
			}
			return nil
		},
		Warnings: func(_ *corev1.Volume, at *field.Path) []string { return []string{at.String() + ": the disk is slow"} },
		References: func(_ *corev1.Pod, v *corev1.Volume, add func(resource, name string)) {
			add("secrets", v.ISCSI.SecretRef.Name)
		},
		Block:  true,
		Plugin: "kubernetes.io/iscsi",
		SetUp: func(n api.Node, _ context.Context, v *corev1.Volume) (string, error) {
			dir, err := n.Folder(v)
			if err != nil {
				return "", err
			}
			return dir, os.Mkdir(filepath.Join(dir, n.Pod().Name), 0o755)
		},
		ReadOnly: func(v *corev1.VolumeSource) bool { return v.ISCSI.ReadOnly },
		Usage: func(*corev1.VolumeSource) (*resource.Quantity, bool) {
			return new(resource.MustParse("1Gi")), true
		},
	}
}

// A new volume type needs only one entry for the API and the node.
func TestNewTypeIsOneEntry(t *testing.T) {
	t.Parallel()
	types := maps.Clone(api.All())
	types["iscsi"] = iscsi()

	facts := podWith(corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
		ISCSI: &corev1.ISCSIVolumeSource{IQN: "disk", ReadOnly: true,
			SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}})
	v, at := &facts.Pod.Spec.Volumes[0], field.NewPath("volumes")
	if types.Default(&v.VolumeSource); v.ISCSI.FSType != "ext4" {
		t.Error("the volume has no defaults")
	}
	if errs := types.Validate(facts.Pod.Spec.Volumes, at); len(errs) != 1 || errs[0].Field != "volumes[0].iscsi.iqn" {
		t.Errorf("validation: %v", errs)
	}
	if v.ISCSI.IQN = "iqn.2020-01.org"; len(types.Validate(facts.Pod.Spec.Volumes, at)) != 0 {
		t.Error("a valid volume is rejected")
	}
	if got := types.Warnings(facts.Pod.Spec.Volumes, at); len(got) != 1 || got[0] != "volumes[0].iscsi: the disk is slow" {
		t.Errorf("warnings: %v", got)
	}
	var refers []string
	types.References(facts.Pod, func(resource, name string) { refers = append(refers, resource+"/"+name) })
	if len(refers) != 1 || refers[0] != "secrets/chap" || !types.Block(v) {
		t.Errorf("references %v, block %v", refers, types.Block(v))
	}

	var plugin string
	set := volume.Set{Dir: t.TempDir(), Mounter: mount.Folders{}, Types: types}
	set.Saw = func(_, p string, _ time.Duration, _ error) { plugin = p }
	paths, err := set.Prepare(t.Context(), facts)
	if err != nil || plugin != "kubernetes.io/iscsi" {
		t.Fatalf("error %v, plugin %q", err, plugin)
	}
	if _, err := os.Stat(filepath.Join(paths["v"], "p")); err != nil {
		t.Error(err)
	}
	c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}
	mounts, err := set.Mounts(facts.Pod, c, paths, nil, volume.Features{})
	if err != nil || len(mounts) != 1 || mounts[0].HostPath != paths["v"] || !mounts[0].Readonly {
		t.Errorf("mounts %v, error %v", mounts, err)
	}
	if limit, counts := types.Usage(v); !counts || limit.String() != "1Gi" {
		t.Errorf("usage: %v %v", limit, counts)
	}
	if err := set.Unmount(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(paths["v"]); err == nil {
		t.Error("the folder of the volume still exists")
	}
	set.Types = nil
	if _, err := set.Prepare(t.Context(), facts); err == nil ||
		!strings.Contains(err.Error(), "volumes of type iscsi are not supported") {
		t.Errorf("volume without the entry: %v", err)
	}
}

// Each type has the name of a field in the objects of the API.
func TestTypesAreFields(t *testing.T) {
	t.Parallel()
	for name := range api.All() {
		if !hasField(reflect.TypeFor[corev1.VolumeSource](), name) {
			t.Errorf("a volume has no field %s", name)
		}
	}
	for name, of := range api.AllPersistent() {
		if !hasField(reflect.TypeFor[corev1.PersistentVolumeSource](), name) {
			t.Errorf("a PersistentVolume has no field %s", name)
		}
		if mounted := of.SetUp != nil; mounted != (of.Plugin != "") || !mounted && of.Path != nil {
			t.Errorf("%s has only some of SetUp, Plugin and Path", name)
		}
	}
}

func hasField(source reflect.Type, want string) bool {
	for f := range source.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == want {
			return true
		}
	}
	return false
}
