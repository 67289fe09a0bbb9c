package claim_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
)

const (
	rwo = corev1.ReadWriteOnce
	rox = corev1.ReadOnlyMany
	rwx = corev1.ReadWriteMany
)

// volume is available, without a class, and usable on every node.
func volume(name, size string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{"storage": resource.MustParse(size)},
			AccessModes: []corev1.PersistentVolumeAccessMode{rwo},
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable},
	}
	for _, f := range change {
		f(v)
	}
	return v
}

func class(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = name }
}

func can(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.AccessModes = modes }
}

func meantFor(name string, uid types.UID) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name, UID: uid}
	}
}

func labelled(key, value string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Labels = map[string]string{key: value} }
}

func on(node string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "host", Operator: corev1.NodeSelectorOpIn,
				Values: []string{node}}}}}}}
	}
}

func block(v *corev1.PersistentVolume) {
	v.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

func phase(p corev1.PersistentVolumePhase) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Status.Phase = p }
}

func attributes(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = &name }
}

func leaving(v *corev1.PersistentVolume) { v.DeletionTimestamp = new(metav1.Now()) }

func TestBest(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"host": "n"}}}
	selector := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
	}
	gold := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }
	unset := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("") }
	for name, c := range map[string]struct {
		claim     func(*corev1.PersistentVolumeClaim)
		volumes   []*corev1.PersistentVolume
		node      *corev1.Node
		taken     map[string]bool
		onlyMeant bool
		want      string
	}{
		"none": {want: ""},
		"smallest": {volumes: []*corev1.PersistentVolume{volume("l", "9Gi"), volume("s", "3Gi"), volume("xs", "1Gi")},
			want: "s"},
		"exact":   {volumes: []*corev1.PersistentVolume{volume("l", "9Gi"), volume("x", "2Gi")}, want: "x"},
		"by name": {volumes: []*corev1.PersistentVolume{volume("b", "2Gi"), volume("a", "2Gi")}, want: "a"},
		"fewer modes": {volumes: []*corev1.PersistentVolume{volume("any", "2Gi", can(rwo, rox, rwx)),
			volume("one", "9Gi")}, want: "one"},
		"more modes":    {volumes: []*corev1.PersistentVolume{volume("any", "2Gi", can(rwx, rwo))}, want: "any"},
		"wrong mode":    {volumes: []*corev1.PersistentVolume{volume("ro", "2Gi", can(rox))}, want: ""},
		"class":         {volumes: []*corev1.PersistentVolume{volume("x", "2Gi", class("x"))}, want: ""},
		"block":         {volumes: []*corev1.PersistentVolume{volume("b", "2Gi", block)}, want: ""},
		"released":      {volumes: []*corev1.PersistentVolume{volume("r", "2Gi", phase(corev1.VolumeReleased))}, want: ""},
		"phase Pending": {volumes: []*corev1.PersistentVolume{volume("p", "2Gi", phase(corev1.VolumePending))}, want: ""},
		"terminating":   {volumes: []*corev1.PersistentVolume{volume("d", "2Gi", leaving)}, want: ""},
		"reserved": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi"), volume("m", "9Gi", meantFor("c", ""))},
			want: "m"},
		"reserved, phase Pending": {volumes: []*corev1.PersistentVolume{volume("m", "9Gi", meantFor("c", ""),
			phase(corev1.VolumePending))}, want: "m"},
		"reserved, another class": {volumes: []*corev1.PersistentVolume{volume("m", "9Gi", meantFor("c", ""), class("x"))},
			want: "m"},
		"reserved, too small": {volumes: []*corev1.PersistentVolume{volume("m", "1Gi", meantFor("c", "")), volume("a",
			"2Gi")},
			want: "a"},
		"reserved for a deleted claim": {volumes: []*corev1.PersistentVolume{volume("m", "2Gi", meantFor("c", "old"))},
			want: ""},
		"reserved for another claim": {volumes: []*corev1.PersistentVolume{volume("m", "2Gi", meantFor("d", ""))},
			want: ""},
		"selector": {claim: selector, volumes: []*corev1.PersistentVolume{volume("a", "2Gi"),
			volume("s", "9Gi", labelled("disk", "ssd"))}, want: "s"},
		"only reserved, none": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi")}, onlyMeant: true, want: ""},
		"only reserved": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi"), volume("m", "2Gi", meantFor("c", ""))},
			onlyMeant: true, want: "m"},
		"on another node": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi", on("m"))}, node: node, want: ""},
		"on the pod's node": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi", on("m")), volume("b", "9Gi", on("n"))},
			node: node, want: "b"},
		"reserved, on another node": {volumes: []*corev1.PersistentVolume{volume("m", "2Gi", on("m"), meantFor("c", "")),
			volume("b", "2Gi")}, node: node, want: ""},
		"any node": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi", on("m"))}, want: "a"},
		"attributes": {claim: gold, volumes: []*corev1.PersistentVolume{volume("a", "2Gi"),
			volume("s", "2Gi", attributes("silver")), volume("z", "9Gi", attributes("gold"))}, want: "z"},
		"attributes that the claim lacks": {volumes: []*corev1.PersistentVolume{volume("g", "2Gi", attributes("gold"))},
			want: ""},
		"empty attributes": {claim: unset, volumes: []*corev1.PersistentVolume{volume("g", "2Gi", attributes("gold")),
			volume("n", "9Gi")}, want: "n"},
		"reserved, without the attributes": {claim: gold, volumes: []*corev1.PersistentVolume{volume("m", "2Gi",
			meantFor("c", "")),
			volume("g", "9Gi", attributes("gold"))}, want: "g"},
		"taken": {volumes: []*corev1.PersistentVolume{volume("a", "2Gi"), volume("b", "9Gi")},
			taken: map[string]bool{"a": true}, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pvc := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "new"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{rwo},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse(
						"2Gi")}},
				},
			}
			if c.claim != nil {
				c.claim(pvc)
			}
			got := ""
			if v := claim.Best(pvc, c.volumes, c.node, c.taken, c.onlyMeant); v != nil {
				got = v.Name
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
