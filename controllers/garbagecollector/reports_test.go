package garbagecollector

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

// texts records Events as text.
type texts struct {
	mu    sync.Mutex
	texts []string
}

func (e *texts) Eventf(obj client.Object, eventtype, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.texts = append(e.texts, fmt.Sprintf("%s %s %s: %s", obj.GetName(), eventtype, reason, fmt.Sprintf(format, args...)))
}

// Each invalid owner reference is reported as in upstream. Only an owner of a known kind that does not exist in the
// object's namespace causes the object's deletion.
func TestInvalidOwners(t *testing.T) {
	t.Parallel()
	const uid = "5f0c"
	reported := func(kind string) string {
		return "child Warning OwnerRefInvalidNamespace: ownerRef [v1/" + kind +
			", namespace: %[1]s, name: owner, uid: %[2]s] does not exist in namespace \"%[1]s\""
	}
	for name, c := range map[string]struct {
		apiVersion, kind string
		child            client.Object
		uid              string // empty: the UID of the owner
		stays            bool
		report           string // empty: none
	}{
		"in another namespace": {"v1", "ConfigMap",
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public"}}, "", false, reported("ConfigMap")},
		"of a cluster-scoped object": {"v1", "ConfigMap", &rbacv1.ClusterRole{}, "", true, reported("ConfigMap")},
		"of an unknown kind": {"example.com/v1", "Widget",
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, uid, true, ""},
		"of an unknown kind and cluster scope": {"example.com/v1", "Widget", &rbacv1.ClusterRole{}, uid, true, ""},
		"absent": {"v1", "ConfigMap",
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, uid, false, ""},
		"absent, of a cluster-scoped object": {"v1", "ConfigMap", &rbacv1.ClusterRole{}, uid, true, ""},
		"cluster-scoped and absent": {"v1", "Node",
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, uid, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api, events := apitest.New(t), &texts{}
				api.Run(New(api.Deps(), events, Config{Kinds: apitest.Kinds()}))
				add(api, "owner")
				owner, _ := apitest.Get[*corev1.ConfigMap](api, "default", "owner")
				ref := metav1.OwnerReference{APIVersion: c.apiVersion, Kind: c.kind, Name: "owner", UID: owner.UID}
				if c.uid != "" {
					ref.UID = uid
				}
				c.child.SetName("child")
				c.child.SetOwnerReferences([]metav1.OwnerReference{ref})
				api.Create(c.child)
				apitest.Settle(time.Minute)
				if _, err := api.Client.Get(t.Context(), client.RefOf(c.child)); (err == nil) != c.stays {
					t.Errorf("get of the object: %v, want it to exist: %v", err, c.stays)
				}
				want := 0
				if c.report != "" {
					want = 1
				}
				if len(events.texts) != want || want == 1 && events.texts[0] != fmt.Sprintf(c.report, c.child.GetNamespace(),
					owner.UID) {
					t.Errorf("events: %q", events.texts)
				}
			})
		})
	}
}
