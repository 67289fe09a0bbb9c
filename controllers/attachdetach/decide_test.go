package attachdetach

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/claim"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func csiVolume(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.AccessModes = modes
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h-" + name}
	return v
}

// situation describes a node with one volume; the test cases change it.
type situation struct {
	view
	was   memory
	after time.Duration // since the VolumeAttachment was created
	never bool
}

func (s *situation) want(modes ...corev1.PersistentVolumeAccessMode) *volume {
	v := &volume{PersistentVolume: csiVolume("v", modes...),
		pods: []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}}}
	s.wanted["a"] = v
	return v
}

func (s *situation) exist(attached bool) *storagev1.VolumeAttachment {
	a := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a",
		CreationTimestamp: metav1.NewTime(began)}}
	a.Spec.Attacher, a.Status.Attached = "d", attached
	s.attachments = append(s.attachments, attachment{a, "kubernetes.io/csi/d^h-v"})
	return a
}

func (s *situation) inUse() {
	s.node.Status.VolumesInUse = []corev1.UniqueVolumeName{"kubernetes.io/csi/d^h-v"}
}
func (s *situation) notReady() { s.node.Status.Conditions[0].Status = corev1.ConditionUnknown }
func (s *situation) listed() {
	s.node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^h-v", DevicePath: "a"}}
}
func (s *situation) unwantedFor(d time.Duration) {
	s.was.since = map[types.UID]time.Time{"a": began.Add(s.after - d)}
}

// text returns a plan as a line.
func (p plan) text() string {
	var parts []string
	for _, a := range p.attached {
		parts = append(parts, "list "+string(a.Name)+"="+a.DevicePath)
	}
	for _, d := range p.detach {
		parts = append(parts, strings.TrimSpace("detach "+d.Name+" "+d.forced))
	}
	for _, c := range p.create {
		parts = append(parts, fmt.Sprintf("create %s of %s with %s on %s", c.Name, *c.Spec.Source.PersistentVolumeName,
			c.Spec.Attacher, c.Spec.NodeName))
	}
	for _, e := range p.events {
		parts = append(parts, e.typ+" "+e.reason+" "+e.pod.Name+": "+strings.TrimSpace(e.is))
	}
	if p.again > 0 {
		parts = append(parts, "again in "+p.again.String())
	}
	return strings.Join(parts, "; ")
}

func TestDecide(t *testing.T) {
	t.Parallel()
	const list = "list kubernetes.io/csi/d^h-v=a"
	taint := func(s *situation) { s.node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} }
	for name, c := range map[string]struct {
		of   func(s *situation)
		want string
	}{
		"nothing":          {func(s *situation) {}, ""},
		"a pod is bound":   {func(s *situation) { s.want() }, "create a of v with d on n"},
		"pod without node": {func(s *situation) { s.want(); s.node = nil }, ""},
		"being attached":   {func(s *situation) { s.want(); s.exist(false); s.after = time.Minute }, "again in 1m0s"},
		"no attacher": {func(s *situation) { s.want(); s.exist(false); s.after = 2 * time.Minute },
			`Warning FailedAttachVolume p: AttachVolume.Attach failed for volume "v" : timed out waiting for ` +
				`external-attacher of d CSI driver to attach volume h-v`},
		"attached": {func(s *situation) { s.want(); s.exist(true) },
			list + `; Normal SuccessfulAttachVolume p: AttachVolume.Attach succeeded for volume "v"`},
		"attached and listed": {func(s *situation) { s.want(); s.exist(true); s.listed(); s.inUse() }, list},
		"the attacher fails": {func(s *situation) {
			s.want()
			s.exist(false).Status.AttachError = &storagev1.VolumeError{Message: "no disk"}
		}, `Warning FailedAttachVolume p: AttachVolume.Attach failed for volume "v" : no disk`},
		"the failure is already reported": {func(s *situation) {
			s.want()
			e := &storagev1.VolumeError{Message: "no disk"}
			s.exist(false).Status.AttachError = e
			s.was.reported = map[string]string{
				"a p": `AttachVolume.Attach failed for volume "v" : no disk` + e.Time.String()}
		}, ""},
		"still being detached": {func(s *situation) {
			s.want()
			s.exist(true).DeletionTimestamp = new(metav1.NewTime(began))
		}, ""},
		"exclusive, on another node": {func(s *situation) { s.want(corev1.ReadWriteOnce).elsewhere = []string{"m"} },
			`Warning FailedAttachVolume p: Waiting for detach for volume "v" Volume is already exclusively attached to one ` +
				`node, waiting on detach before it can be attached to another node`},
		"exclusive, used on another node": {func(s *situation) {
			v := s.want(corev1.ReadWriteOncePod)
			v.elsewhere, v.users = []string{"m"}, []string{"x", "y"}
		}, `Warning FailedAttachVolume p: Waiting for detach for volume "v" Volume is already used by pod(s) x, y`},
		"shared, on another node": {func(s *situation) {
			s.want(corev1.ReadWriteOnce, corev1.ReadWriteMany).elsewhere = []string{"m"}
		}, "create a of v with d on n"},
		"not wanted":         {func(s *situation) { s.exist(true); s.listed() }, "detach a"},
		"not wanted, in use": {func(s *situation) { s.exist(true); s.listed(); s.inUse() }, list},
		"never attached":     {func(s *situation) { s.exist(false) }, "detach a"},
		"in use for an hour": {func(s *situation) {
			s.exist(true)
			s.inUse()
			s.after = time.Hour
			s.unwantedFor(time.Hour)
		}, list},
		"in use, not ready": {func(s *situation) { s.exist(true); s.inUse(); s.notReady() }, list + "; again in 6m0s"},
		"not ready for long": {func(s *situation) {
			s.exist(true)
			s.inUse()
			s.notReady()
			s.unwantedFor(5 * time.Minute)
		}, list + "; again in 1m0s"},
		"not ready for the timeout": {func(s *situation) {
			s.exist(true)
			s.inUse()
			s.notReady()
			s.unwantedFor(6 * time.Minute)
		}, "detach a timeout"},
		"forced detach disabled": {func(s *situation) {
			s.exist(true)
			s.inUse()
			s.notReady()
			s.unwantedFor(time.Hour)
			s.never = true
		}, list},
		"out of service": {func(s *situation) {
			s.exist(true)
			s.inUse()
			s.notReady()
			taint(s)
			s.never = true
		}, "detach a out-of-service"},
		"out of service, pod not deleted": {func(s *situation) {
			s.want()
			s.exist(true)
			s.listed()
			s.inUse()
			s.notReady()
			taint(s)
		}, list},
		"the node is deleted": {func(s *situation) { s.exist(true); s.node = nil }, list + "; again in 6m0s"},
		"deleted for long": {func(s *situation) {
			s.exist(true)
			s.node = nil
			s.unwantedFor(6 * time.Minute)
		}, "detach a timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			s := situation{view: view{name: "n", node: node, wanted: map[string]*volume{}}}
			c.of(&s)
			p := decide(s.view, s.was, began.Add(s.after), s.never)
			if got := p.text(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if again := decide(s.view, p.memory, began.Add(s.after), s.never); len(again.events) > 0 {
				t.Errorf("repeated Event: %s", again.text())
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	name := claim.UniqueName("d.example.com", "a/b^c")
	driver, handle, ok := claim.SplitUniqueName(name)
	if name != "kubernetes.io/csi/d.example.com^a/b^c" || driver != "d.example.com" || handle != "a/b^c" || !ok {
		t.Error(name, driver, handle, ok)
	}
	const want = "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d" // as upstream: of "hdn"
	if got := claim.AttachmentName("d", "h", "n"); got != want || !ourName.MatchString(got) {
		t.Errorf("got %s", got)
	}
}
