package eventttl

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func event(name string) *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
		Reason:         "Test", Type: corev1.EventTypeNormal, LastTimestamp: metav1.Now(),
	}
}

func count(api *apitest.API) int { return len(apitest.List[*corev1.Event](api, "default")) }

func TestEventsExpireAnHourAfterLastOccurrence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{}))
		api.Create(event("a"), event("b"))
		apitest.Settle(30 * time.Minute)
		apitest.Change(api, event("b"), "", func(e *corev1.Event) { e.LastTimestamp = metav1.Now(); e.Count = 2 })
		apitest.Settle(29 * time.Minute)
		if n := count(api); n != 2 {
			t.Errorf("%d events after 59 minutes", n)
		}
		apitest.Settle(3 * time.Minute)
		if n := count(api); n != 1 {
			t.Errorf("%d events after 62 minutes, want the repeated one", n)
		}
		apitest.Settle(30 * time.Minute)
		if n := count(api); n != 0 {
			t.Errorf("%d events after 92 minutes", n)
		}
		api.Create(event("c"))
		apitest.Settle(62 * time.Minute)
		if n := count(api); n != 0 {
			t.Error("an Event that was created after a pause did not expire")
		}
	})
}

func TestOldestEventsBeyondMaximumAreDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(New(api.Deps(), Config{Max: 80}))
		for i := range 81 {
			api.Create(event(fmt.Sprintf("e%03d", i)))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		all := apitest.List[*corev1.Event](api, "default")
		if len(all) != 70 || all[0].Name != "e011" {
			t.Errorf("%d events from %s, want the newest 70", len(all), all[0].Name)
		}
	})
}
