package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/host/mount"
	"monopod/agent/pod/identity"
	"monopod/agent/pod/volumes"
	"monopod/agent/podapi/env"
	"monopod/agent/storage/claims"
)

// parts implements the tokens and claims of a node.
type parts struct {
	due bool
	err error
}

func (p *parts) Due(types.UID) bool { return p.due }

func (p *parts) Get(context.Context, *corev1.Pod, *corev1.ServiceAccountTokenProjection) (string, error) {
	return "token", p.err
}

func (p *parts) Forget(types.UID) {}

func (p *parts) Volume(context.Context, *corev1.Pod, *corev1.Volume, bool) (*corev1.PersistentVolume, error) {
	return nil, p.err
}

// users is the list of containers that mount the volume.
var users = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}}

func TestPrepare(t *testing.T) {
	t.Parallel()
	var events []string
	clock, p, made := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), &parts{}, 0
	s := volumes.New(&volumes.Node{
		Dir: t.TempDir(), Clock: clock, Mounter: mount.Folders{}, Tokens: p, Claims: p, Observe: func(string, time.Duration,
			error) {
			made++
		},
	}, &identity.Pod{UID: "u", Log: zap.NewNop(), Event: func(_, _, reason, format string, args ...any) {
		events = append(events, reason+": "+fmt.Sprintf(format, args...))
	}})
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Containers: users,
			Volumes: []corev1.Volume{{Name: "v",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	prepare := func(starting bool) error { return s.Prepare(t.Context(), env.Facts{Pod: pod}, starting, false) }

	if err := prepare(false); err != nil || made != 0 || s.Mounted() {
		t.Errorf("no container starts: %v, %d volumes", err, made)
	}
	if err := prepare(true); err != nil || made != 1 || !s.Mounted() ||
		s.Locations()["v"].Plugin != "kubernetes.io/empty-dir" {
		t.Errorf("%v, %d volumes: %v", err, made, s.Locations())
	}
	if err := prepare(true); err != nil || made != 1 {
		t.Errorf("second call: %v, %d volumes, want 1", err, made)
	}
	s.MarkStale()
	if err := prepare(false); err != nil || made != 2 {
		t.Errorf("after MarkStale: %v, %d volumes, want 2", err, made)
	}
	if err := s.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Error("folder of volumes after Teardown: ", err)
	}
	if len(events) > 0 {
		t.Error("unexpected events: ", events)
	}
}

// A claim may be bound shortly after its pod was scheduled, so only a claim that stays unbound causes an event.
func TestUnboundClaim(t *testing.T) {
	t.Parallel()
	events := 0
	clock, p := clocktesting.NewFakePassiveClock(time.Unix(0, 0)), &parts{err: claims.ErrUnbound}
	s := volumes.New(&volumes.Node{
		Dir: t.TempDir(), Clock: clock, Mounter: mount.Folders{}, Tokens: p, Claims: p, Observe: func(string, time.Duration,
			error) {
		},
	}, &identity.Pod{UID: "u", Log: zap.NewNop(), Event: func(string, string, string, string, ...any) { events++ }})
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: users,
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
	for _, c := range []struct {
		after  time.Duration
		events int
	}{{0, 0}, {9 * time.Second, 0}, {10 * time.Second, 1}} {
		clock.SetTime(time.Unix(0, 0).Add(c.after))
		if err := s.Prepare(t.Context(), env.Facts{Pod: pod}, true, false); !errors.Is(err, claims.ErrUnbound) ||
			!errors.Is(s.Failed(), claims.ErrUnbound) ||
			events != c.events {
			t.Errorf("after %v: %v, %d events", c.after, err, events)
		}
	}
}

// A failed refresh is retried until it succeeds, even if the object does not change again.
func TestFailedRefresh(t *testing.T) {
	t.Parallel()
	p, made := &parts{}, 0
	s := volumes.New(&volumes.Node{
		Dir: t.TempDir(), Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Mounter: mount.Folders{}, Tokens: p,
		Claims: p, Observe: func(string, time.Duration, error) { made++ },
	}, &identity.Pod{UID: "u", Log: zap.NewNop(), Event: func(string, string, string, string, ...any) {}})
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: users,
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{token}}}}}}}
	for i, c := range []struct {
		stale bool
		err   error
		made  int
	}{
		{made: 1},
		{stale: true, err: errors.New("the API server is away"), made: 2},
		{err: errors.New("the API server is away"), made: 3},
		{made: 4},
		{made: 4},
	} {
		if p.err = c.err; c.stale {
			s.MarkStale()
		}
		err := s.Prepare(t.Context(), env.Facts{Pod: pod}, i == 0, i > 0)
		if err != nil || (s.Failed() != nil) != (c.err != nil) || made != c.made {
			t.Errorf("attempt %d: %v, failed: %v, %d volumes", i+1, err, s.Failed(), made)
		}
	}
}
