package registrar

import (
	"context"
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// TestDegradedNetworkIsReportedWhileItLasts checks that the node has the condition only while the network is degraded,
// and never NetworkUnavailable, which prevents scheduling.
func TestDegradedNetworkIsReportedWhileItLasts(t *testing.T) {
	t.Parallel()
	var degraded error
	var ips []string
	r, err := New(Deps{
		Runtime: &away{}, Clock: clock.RealClock{},
		Resources:    func() (_, _ corev1.ResourceList) { return nil, nil },
		Pressure:     func() []corev1.NodeConditionType { return nil },
		ShuttingDown: func() bool { return false },
		Needs:        func() error { return nil },
	}, Config{NodeName: "n1", HostIPs: func() []string { return ips },
		Network: func(context.Context) error { return degraded }})
	if err != nil {
		t.Fatal(err)
	}
	var stored corev1.NodeStatus
	for i, why := range []string{"", "no nftables", ""} {
		degraded = nil
		if why != "" {
			degraded = errors.New(why)
		}
		ips = []string{"192.0.2.1", "2001:db8::" + strconv.Itoa(i)} // the addresses of the machine change
		next := r.status(t.Context())
		if got := next.Addresses; len(got) != 3 || got[1].Address != ips[1] || got[1].Type != corev1.NodeInternalIP {
			t.Errorf("addresses %v, want %s", got, ips)
		}
		next.Conditions = append(next.Conditions, foreignConditions(stored.Conditions, next.Conditions)...)
		stored = next
		got := ""
		if c := findCondition(stored.Conditions, conditionNetwork); c != nil {
			got = c.Message
			if c.Status != corev1.ConditionTrue {
				t.Errorf("condition %v", c)
			}
		}
		if got != why {
			t.Errorf("the condition has the message %q, want %q", got, why)
		}
		if findCondition(stored.Conditions, corev1.NodeNetworkUnavailable) != nil {
			t.Error("the node has the condition NetworkUnavailable")
		}
	}
}

// TestNotReadyWithoutWhatEveryPodNeeds checks that the Ready condition names missing requirements and their remedy.
func TestNotReadyWithoutWhatEveryPodNeeds(t *testing.T) {
	t.Parallel()
	r, err := New(Deps{
		Runtime: &away{}, Clock: clock.RealClock{},
		Resources:    func() (_, _ corev1.ResourceList) { return nil, nil },
		Pressure:     func() []corev1.NodeConditionType { return nil },
		ShuttingDown: func() bool { return false },
		Needs:        func() error { return errors.New("no control groups are mounted: run mount") },
	}, Config{NodeName: "n1", HostIPs: func() []string { return nil },
		Network: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	c := findCondition(r.status(t.Context()).Conditions, corev1.NodeReady)
	if c == nil || c.Status != corev1.ConditionFalse ||
		c.Message != "no pod can start: no control groups are mounted: run mount" {
		t.Errorf("the Ready condition is %+v", c)
	}
}

// The node has the condition of a problem until the problem ends.
func TestProblems(t *testing.T) {
	t.Parallel()
	r, err := New(Deps{
		Runtime: &away{}, Clock: clock.RealClock{},
		Resources:    func() (_, _ corev1.ResourceList) { return nil, nil },
		Pressure:     func() []corev1.NodeConditionType { return nil },
		ShuttingDown: func() bool { return false },
		Needs:        func() error { return nil },
	}, Config{NodeName: "n1", HostIPs: func() []string { return nil },
		Network: func(context.Context) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range []string{"", "a.tar: no space left", ""} {
		r.Problem(ImagesNotImported, why)
		next := r.status(t.Context())
		got := ""
		if c := findCondition(next.Conditions, ImagesNotImported); c != nil && c.Status == corev1.ConditionTrue {
			got = c.Message
		}
		if got != why || findCondition(next.Conditions, StaticPodsInvalid) != nil {
			t.Errorf("the condition has the message %q, want %q; all conditions: %v", got, why, next.Conditions)
		}
	}
}
