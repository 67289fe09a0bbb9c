package storageversionmigrator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func of(name, group, resource string) *migration {
	return &migration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "storagemigration.k8s.io/v1", Kind: "StorageVersionMigration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       migrationv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Group: group, Resource: resource}},
	}
}

// counting is a client that counts updates of ConfigMaps, and fails those of refused names.
type counting struct {
	client.Client
	mu      sync.Mutex // guards the fields below
	writes  map[string]int
	refused map[string]error
}

func (c *counting) Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error) {
	if ref.Resource == client.ConfigMaps {
		if err := c.write(ref.Name); err != nil {
			return nil, err
		}
	}
	return c.Client.Update(ctx, ref, change)
}

func (c *counting) write(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes[name]++
	return c.refused[name]
}

// refuse lets updates of the name fail; nil: succeed.
func (c *counting) refuse(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[name] = err
}

func (c *counting) count(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes[name]
}

func TestMigrates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		deps := api.Deps()
		count := &counting{Client: api.Client, writes: map[string]int{}, refused: map[string]error{}}
		deps.Client = count
		for _, name := range []string{"a", "b"} {
			api.Create(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		before := apitest.Existing[*corev1.ConfigMap](api, "default", "a")
		api.Run(New(deps, Config{Kinds: apitest.Kinds()}))

		api.Create(of("all", "", "configmaps"), of("unknown", "example.com", "things"))
		synctest.Wait()
		all := apitest.Existing[*migration](api, "", "all")
		if !meta.IsStatusConditionTrue(all.Status.Conditions, "Succeeded") ||
			!meta.IsStatusConditionFalse(all.Status.Conditions, "Running") || all.Status.ResourceVersion == "" {
			t.Errorf("status %+v", all.Status)
		}
		if a, b := count.count("a"), count.count("b"); a != 1 || b != 1 {
			t.Errorf("%d and %d writes, want one for each object", a, b)
		}
		if after := apitest.Existing[*corev1.ConfigMap](api, "default",
			"a"); after.ResourceVersion != before.ResourceVersion {
			t.Errorf("resourceVersion of an object in the current version changed from %s to %s", before.ResourceVersion,
				after.ResourceVersion)
		}
		if unknown := apitest.Existing[*migration](api, "", "unknown"); len(unknown.Status.Conditions) > 0 {
			t.Errorf("a migration of an unknown kind does not wait: %+v", unknown.Status)
		}
		apitest.Settle(kindTimeout)
		unknown := apitest.Existing[*migration](api, "", "unknown")
		if failed := meta.FindStatusCondition(unknown.Status.Conditions, "Failed"); failed == nil ||
			failed.Status != metav1.ConditionTrue || failed.Reason != reasonFailed {
			t.Errorf("status %+v", unknown.Status)
		}

		count.refuse("b", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "b", nil))
		api.Create(of("refused", "", "configmaps"))
		synctest.Wait()
		if m := apitest.Existing[*migration](api, "", "refused"); !meta.IsStatusConditionTrue(m.Status.Conditions, "Failed") {
			t.Errorf("status %+v", m.Status)
		}

		count.refuse("b", apierrors.NewInternalError(errors.New("a webhook is down")))
		api.Create(of("later", "", "configmaps"))
		synctest.Wait()
		if m := apitest.Existing[*migration](api, "", "later"); !meta.IsStatusConditionTrue(m.Status.Conditions, "Running") ||
			ended(m) {
			t.Errorf("status %+v", m.Status)
		}
		count.refuse("b", nil)
		apitest.Settle(20 * time.Minute) // longer than any backoff
		if m := apitest.Existing[*migration](api, "", "later"); !meta.IsStatusConditionTrue(m.Status.Conditions,
			"Succeeded") {
			t.Errorf("status %+v", m.Status)
		}
	})
}
