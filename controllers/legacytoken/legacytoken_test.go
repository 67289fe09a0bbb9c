package legacytoken

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// period is short, because years of virtual time take long.
const period = 2 * day

// date formats the date that is this number of days after start.
func date(start time.Time, days int) string { return start.AddDate(0, 0, days).Format(time.DateOnly) }

// world is an API with the ServiceAccount robot and its Secret.
type world struct {
	*apitest.API
	start time.Time
}

func within(t *testing.T, listed bool, labels map[string]string, test func(t *testing.T, w world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := world{apitest.New(t), time.Now().UTC()}
		sa := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{Kind: "ServiceAccount", APIVersion: "v1"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot"}}
		if listed {
			sa.Secrets = []corev1.ObjectReference{{Name: "s"}}
		}
		w.Create(sa, secret(labels))
		w.Run(New(w.Deps(), Config{Period: period}))
		test(t, w)
	})
}

func secret(labels map[string]string) *corev1.Secret {
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: labels,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}}
}

// is returns the state of the Secret: valid, gone, or the date since which its token is invalid.
func (w world) is() string {
	synctest.Wait()
	s, ok := apitest.Get[*corev1.Secret](w.API, "default", "s")
	switch {
	case !ok:
		return "gone"
	case s.Labels[invalidSince] == "":
		return "valid"
	}
	return s.Labels[invalidSince]
}

// TestUnusedTokens tests after how many days the token of a Secret becomes invalid, and after how many the Secret is
// deleted; -1: never.
func TestUnusedTokens(t *testing.T) {
	t.Parallel()
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the time at which each synctest bubble starts
	for name, tc := range map[string]struct {
		manual        bool
		labels        map[string]string
		invalid, gone int
	}{
		// Tracking begins with the day after the date in the ConfigMap.
		"never used":             {false, nil, 3, 3 + 3},
		"created by a user":      {true, nil, -1, -1},
		"used before":            {false, map[string]string{lastUsed: date(start, -100)}, 3, 3 + 3},
		"used later":             {false, map[string]string{lastUsed: date(start, 2)}, 5, 5 + 3},
		"last use is not a date": {false, map[string]string{lastUsed: "yesterday"}, -1, -1},
		"invalid for long":       {false, map[string]string{invalidSince: date(start, -1000)}, -1, 3},
		"invalid, used since then": {false, map[string]string{invalidSince: date(start, -1000),
			lastUsed: date(start, 2)}, -1, 5},
		"invalid since is not a date":         {false, map[string]string{invalidSince: "ever"}, 3, 3 + 3},
		"created by a user, invalid for long": {true, map[string]string{invalidSince: date(start, -1000)}, -1, -1},
		"created by a user, used long ago":    {true, map[string]string{lastUsed: date(start, -1000)}, -1, -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within(t, !tc.manual, tc.labels, func(t *testing.T, w world) {
				if !w.start.Equal(start) {
					t.Fatalf("the test starts at %v, want %v", w.start, start)
				}
				first := w.is()
				invalid, gone := -1, -1
				for n := range 10 {
					switch now := w.is(); {
					case now == "gone" && gone < 0:
						gone = n
					case now != first && now != "gone" && invalid < 0:
						if invalid = n; now != date(start, n) {
							t.Errorf("invalid since %s on day %d", now, n)
						}
					}
					apitest.Settle(day)
				}
				if invalid != tc.invalid || gone != tc.gone {
					t.Errorf("invalid after %d days, deleted after %d; want %d and %d", invalid, gone, tc.invalid, tc.gone)
				}
			})
		})
	}
}

// TestUsedTokens tests that a token stays valid while a pod refers to it and for a period after its last use, and that
// a use of an invalid token delays the deletion of the Secret.
func TestUsedTokens(t *testing.T) {
	t.Parallel()
	refer := corev1.LocalObjectReference{Name: "s"}
	for name, change := range map[string]func(*corev1.PodSpec){
		"volume": func(s *corev1.PodSpec) { s.Volumes[0].Secret = &corev1.SecretVolumeSource{SecretName: "s"} },
		"projected": func(s *corev1.PodSpec) {
			s.Volumes[0].Projected = &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: refer}}}}
		},
		"env": func(s *corev1.PodSpec) {
			s.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{}
			s.Containers[0].Env = []corev1.EnvVar{{Name: "A",
				ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: refer,
					Key: "token"}}}}
		},
		"envFrom": func(s *corev1.PodSpec) {
			s.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{}
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: refer}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within(t, true, nil, func(t *testing.T, w world) {
				p := apitest.Pod("default", "p", func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
					change(&p.Spec)
				})
				w.Create(p)
				apitest.Settle(3 * period)
				if got := w.is(); got != "valid" {
					t.Fatalf("while a pod refers to it: %s", got)
				}
				apitest.Change(w.API, secret(nil), "", func(s *corev1.Secret) {
					s.Labels = map[string]string{lastUsed: time.Now().UTC().Format(time.DateOnly)}
				})
				w.EndPod(p)
				apitest.Settle(period)
				if got := w.is(); got != "valid" {
					t.Fatalf("a period after the last use: %s", got)
				}
				apitest.Settle(2 * day)
				if got := w.is(); got == "valid" || got == "gone" {
					t.Fatalf("more than a period after the last use: %s", got)
				}
				// A use of the invalid token delays the deletion.
				apitest.Settle(day)
				apitest.Change(w.API, secret(nil), "", func(s *corev1.Secret) {
					s.Labels[lastUsed] = time.Now().UTC().Format(
						time.DateOnly)
				})
				apitest.Settle(period)
				if got := w.is(); got == "gone" {
					t.Error("the Secret was deleted within a period after its last use")
				}
				// A user makes the token valid again.
				apitest.Change(w.API, secret(nil), "", func(s *corev1.Secret) {
					s.Labels = map[string]string{lastUsed: time.Now().UTC().Format(time.DateOnly)}
				})
				apitest.Settle(period)
				if got := w.is(); got != "valid" {
					t.Error(got)
				}
			})
		})
	}
}

// TestTracking tests that the ConfigMap keeps the date of the first start, and that the controller recreates and
// repairs it.
func TestTracking(t *testing.T) {
	t.Parallel()
	within(t, true, nil, func(t *testing.T, w world) {
		since := func() string {
			synctest.Wait()
			return apitest.Existing[*corev1.ConfigMap](w.API, "kube-system", trackingName).Data[trackingKey]
		}
		if got := since(); got != date(w.start, 0) {
			t.Errorf("since %s", got)
		}
		rev := w.Store.Revision()
		apitest.Settle(day)
		if got := since(); got != date(w.start, 0) || w.Store.Revision() != rev {
			t.Errorf("after a day: since %s, %d writes", got, w.Store.Revision()-rev)
		}
		cm := apitest.Existing[*corev1.ConfigMap](w.API, "kube-system", trackingName)
		apitest.Change(w.API, cm, "", func(cm *corev1.ConfigMap) { cm.Data = map[string]string{"other": "x"} })
		if got := since(); got != date(w.start, 1) {
			t.Errorf("repaired with %s", got)
		}
		apitest.Settle(day)
		w.Delete(cm, "")
		if got := since(); got != date(w.start, 2) {
			t.Errorf("recreated with %s", got)
		}
		if got := w.is(); got != "valid" {
			t.Error(got)
		}
		// An administrator changes the date.
		apitest.Change(w.API, cm, "", func(cm *corev1.ConfigMap) {
			cm.Data = map[string]string{trackingKey: date(w.start,
				-500)}
		})
		if got := w.is(); got != date(w.start, 2) {
			t.Error(got)
		}
	})
}
