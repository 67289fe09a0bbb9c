package registrar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"
)

// away is a runtime that is unavailable, and a recorder of events.
type away struct{ reasons []string }

func (*away) Version(context.Context) (*cri.VersionResponse, error) { return nil, errors.New("away") }
func (*away) Status(context.Context) (*cri.StatusResponse, error)   { return nil, errors.New("away") }
func (*away) ListImages(context.Context) ([]*cri.Image, error)      { return nil, errors.New("away") }

func (a *away) Reference(_ corev1.ObjectReference, _, reason, _ string, _ ...any) {
	a.reasons = append(a.reasons, reason)
}

// TestShortageIsReportedWhileItLasts checks that the node has the condition until the last problem ends.
func TestShortageIsReportedWhileItLasts(t *testing.T) {
	t.Parallel()
	a := &away{}
	r, err := New(Deps{
		Runtime: a, Recorder: a, Clock: clock.RealClock{},
		Resources:    func() (_, _ corev1.ResourceList) { return nil, nil },
		Pressure:     func() []corev1.NodeConditionType { return nil },
		ShuttingDown: func() bool { return false },
		Needs:        func() error { return nil },
	}, Config{NodeName: "n1", HostIPs: func() []string { return nil },
		Network: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	shown := func() string {
		if c := findCondition(r.status(t.Context()).Conditions, conditionCgroups); c != nil {
			return c.Message
		}
		return ""
	}
	for i, step := range []struct {
		of, why, want string
	}{
		{"kubepods", "no pids", "no pids"},
		{"pod1", "no pids", "no pids"},
		{"pod2", "a file is read-only", "a file is read-only"},
		{"pod2", "", "no pids"},
		{"pod2", "", "no pids"},
		{"kubepods", "", "no pids"},
		{"pod1", "no memory", "no memory"},
		{"pod1", "", ""},
		{"pod3", "", ""},
	} {
		var err error
		if step.why != "" {
			err = errors.New(step.why)
		}
		r.SetCgroupProblem(step.of, err)
		if got := shown(); got != step.want {
			t.Errorf("step %d: the condition has the message %q, want %q", i, got, step.want)
		}
	}
	if want := []string{"CgroupLimitsUnavailable", "CgroupLimitsAvailable"}; !slices.Equal(a.reasons, want) {
		t.Errorf("events %v, want %v", a.reasons, want)
	}
	if n := fmt.Sprint(r.cgroupProblems.byOwner, r.cgroupProblems.count); n != "map[] map[]" {
		t.Errorf("problems left: %s", n)
	}
}
