package flow_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	schema = flowcontrolv1.FlowSchema
	level  = flowcontrolv1.PriorityLevelConfiguration
)

// cluster is a registry, and the configuration that was applied last.
type cluster struct {
	*testing.T
	client.Client
	store store.Store

	mu      sync.Mutex
	schemas []*schema
	levels  []*level
}

// run runs the controller in a new cluster until the test ends.
func run(t *testing.T) *cluster {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	reg := registry.New(s, resources, registry.Config{})
	metrics, err := follow.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	cl := &cluster{T: t, Client: reg, store: s}
	if err := flow.Ensure(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	c := flow.NewController(
		follow.Deps{Client: reg, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Metrics: metrics},
		func(schemas []*schema, levels []*level) {
			cl.mu.Lock()
			defer cl.mu.Unlock()
			cl.schemas, cl.levels = schemas, levels
		})
	go c.Run(t.Context())
	cl.settle()
	return cl
}

func (c *cluster) settle() {
	time.Sleep(time.Minute) // in virtual time
	synctest.Wait()
}

func (c *cluster) schema(name string) *schema {
	c.Helper()
	fs, err := client.Get[*schema](c.Context(), c, "", name)
	if err != nil {
		c.Fatal(err)
	}
	return fs
}

func (c *cluster) level(name string) *level {
	c.Helper()
	pl, err := client.Get[*level](c.Context(), c, "", name)
	if err != nil {
		c.Fatal(err)
	}
	return pl
}

// dangling returns the status and the reason of the condition Dangling.
func (c *cluster) dangling(name string) (out flowcontrolv1.ConditionStatus, reason string) {
	c.Helper()
	for _, cond := range c.schema(name).Status.Conditions {
		if cond.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return cond.Status, cond.Reason
		}
	}
	return "", ""
}

func (c *cluster) delete(obj client.Object) {
	c.Helper()
	if _, err := c.Delete(c.Context(), client.RefOf(obj), metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

func inCluster(t *testing.T, do func(c *cluster)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { do(run(t)) })
}

// A new cluster has upstream's objects, applied with their UIDs. After that, the controller writes nothing.
func TestNewCluster(t *testing.T) {
	inCluster(t, func(c *cluster) {
		if len(c.schemas) != 11 || len(c.levels) != 8 {
			c.Errorf("%d schemas and %d levels", len(c.schemas), len(c.levels))
		}
		for _, fs := range c.schemas {
			if status, reason := c.dangling(fs.Name); fs.UID == "" || status != flowcontrolv1.ConditionFalse ||
				reason != "Found" {
				c.Errorf("%s: UID %q, dangling %s %s", fs.Name, fs.UID, status, reason)
			}
		}
		before, rev, err := c.List(c.Context(), client.Selector{Resource: client.FlowSchemas})
		if err != nil || len(before) != 11 {
			c.Fatal(len(before), err)
		}
		time.Sleep(24 * time.Hour)
		if _, now, _ := c.List(c.Context(), client.Selector{Resource: client.FlowSchemas}); now != rev {
			c.Errorf("an idle cluster went from revision %s to %s", rev, now)
		}
	})
}

func TestDanglingFollowsTheLevel(t *testing.T) {
	inCluster(t, func(c *cluster) {
		fs := &schema{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "l"}}}
		if _, err := c.Create(c.Context(), fs); err != nil {
			c.Fatal(err)
		}
		c.settle()
		if status, reason := c.dangling("s"); status != flowcontrolv1.ConditionTrue || reason != "NotFound" {
			c.Errorf("without the level: %s %s", status, reason)
		}
		pl := &level{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:    flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}}}
		if _, err := c.Create(c.Context(), pl); err != nil {
			c.Fatal(err)
		}
		c.settle()
		if status, _ := c.dangling("s"); status != flowcontrolv1.ConditionFalse {
			c.Errorf("with the level: %s", status)
		}
		if !slices.ContainsFunc(c.levels, func(l *level) bool {
			return l.Name == "l" && ptr.Deref(l.Spec.Limited.NominalConcurrencyShares, 0) == 30
		}) {
			c.Error("the level was not applied")
		}
		c.delete(pl)
		c.settle()
		if status, _ := c.dangling("s"); status != flowcontrolv1.ConditionTrue {
			c.Errorf("after the level was deleted: %s", status)
		}
	})
}

// The controller restores default objects that are deleted. It keeps a user's change of a suggested object if the
// auto-update annotation is false or invalid.
func TestDefaultsAreKept(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.delete(c.schema("catch-all"))
		c.delete(c.level("workload-low"))
		c.settle()
		c.schema("catch-all")
		c.level("workload-low")

		change := func(name, update string, shares int32) {
			c.Helper()
			_, err := client.Update(c.Context(), c.Client, c.level(name), "", func(pl *level) error {
				pl.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = update
				pl.Spec.Limited.NominalConcurrencyShares = ptr.To(shares)
				return nil
			})
			if err != nil {
				c.Fatal(err)
			}
		}
		change("workload-low", "false", 7)
		change("workload-high", "true", 7)
		// An invalid value counts as none; the generation shows that a user has changed the level.
		change("system", "neither", 7)
		c.settle()
		for name, want := range map[string]int32{"workload-low": 7, "workload-high": 40, "system": 7} {
			if got := *c.level(name).Spec.Limited.NominalConcurrencyShares; got != want {
				c.Errorf("%s has %d shares, want %d", name, got, want)
			}
		}
		if got := c.level("system").Annotations[flowcontrolv1.AutoUpdateAnnotationKey]; got != "false" {
			c.Errorf("the annotation of a changed level is %q", got)
		}
		exempt, err := client.Update(c.Context(), c.Client, c.level("exempt"), "", func(pl *level) error {
			pl.Spec.Exempt.NominalConcurrencyShares = ptr.To(int32(9))
			return nil
		})
		if err != nil {
			c.Fatal(err)
		}
		c.settle()
		if got := *c.level("exempt").Spec.Exempt.NominalConcurrencyShares; got != 9 || exempt.Generation != 2 {
			c.Errorf("the seats of exempt were restored to %d", got)
		}
	})
}

// Objects of an earlier version are deleted, unless the auto-update annotation is false or missing.
func TestObsoleteObjects(t *testing.T) {
	inCluster(t, func(c *cluster) {
		for name, update := range map[string]string{"old": "true", "kept": "false", "mine": ""} {
			fs := &schema{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: flowcontrolv1.FlowSchemaSpec{
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "system"}}}
			if update != "" {
				fs.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: update}
			}
			if _, err := c.Create(c.Context(), fs); err != nil {
				c.Fatal(err)
			}
		}
		c.settle()
		if _, err := client.Get[*schema](c.Context(), c, "", "old"); !apierrors.IsNotFound(err) {
			c.Errorf("old: %v", err)
		}
		c.schema("kept")
		c.schema("mine")
	})
}
