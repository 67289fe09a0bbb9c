package facts_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/registry"
	"monopod/apiserver/why/facts"
	"monopod/store"
)

type reader struct{ client.Client }

func (reader) Log(context.Context, *corev1.Pod, string, bool) (string, error) { return "", nil }
func (reader) Refuses(context.Context, *corev1.Pod, int32) bool               { return false }
func (reader) Tunnel(string) nodetunnel.State                                 { return nodetunnel.State{} }

// The facts about a pod or a claim that waits for a CSI driver contain the driver and its pods.
func TestDrivers(t *testing.T) {
	t.Parallel()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	pod := func(name, node, image string, volumes ...corev1.VolumeSource) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name),
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: image}}}}
		for i, v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v})
		}
		return p
	}
	uses := func(claim string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	}
	claim := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta(name), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: volume,
			StorageClassName: new("class"), Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
	}
	registry := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/kubelet/plugins_registry/"}}
	for _, obj := range []client.Object{
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}, Provisioner: "d.example.com"},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d.example.com"}},
		&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "vol"}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:    corev1.ResourceList{"storage": resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example.com", VolumeHandle: "h"}}}},
		claim("bound", "vol"), claim("open", ""),
		pod("waits", "box", "x", uses("bound")), pod("unplaced", "", "x", uses("open")),
		pod("driver", "box", "x", registry), pod("elsewhere", "other", "x", registry),
		pod("controller", "other", "r/sig-storage/csi-provisioner:v5"), pod("plain", "box", "x"),
	} {
		if _, err := r.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	read := func(obj client.Object) string {
		f, err := facts.Collect(t.Context(), reader{r}, client.RefOf(obj), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range f.Others {
			names = append(names, words.Kind(o)+" "+o.GetName())
		}
		for _, ref := range f.Absent {
			if ref.Resource != client.Nodes && ref.Resource != client.ConfigMaps {
				names = append(names, "no "+ref.Resource.Resource+" "+strings.SplitAfter(ref.Name, "csi-")[0])
			}
		}
		slices.Sort(names)
		return strings.Join(names, ", ")
	}
	const ofDriver = "CSIDriver d.example.com, "
	for _, c := range []struct {
		obj  client.Object
		want string
	}{
		{pod("waits", "", ""), ofDriver + "PersistentVolume vol, PersistentVolumeClaim bound, Pod controller, Pod driver, " +
			"StorageClass class, no csinodes box, no volumeattachments csi-"},
		{pod("unplaced", "", ""), ofDriver + "PersistentVolumeClaim open, Pod controller, StorageClass class"},
		{claim("open", ""), ofDriver + "Pod controller, StorageClass class"},
		{pod("plain", "", ""), ""},
	} {
		if got := read(c.obj); got != c.want {
			t.Errorf("%s: got %s\nwant %s", c.obj.GetName(), got, c.want)
		}
	}
}
