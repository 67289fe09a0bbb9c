package clusterroleaggregation

import (
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func role(name, label string, verbs ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}}}
	for _, v := range verbs {
		r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{v}, APIGroups: []string{""}, Resources: []string{"pods"}})
	}
	return r
}

func aggregate(name, label, of string) *rbacv1.ClusterRole {
	r := role(name, label)
	r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{of: "true"}}}}
	return r
}

// The rules of an aggregated ClusterRole follow those of the selected roles, which may be aggregated themselves.
func TestRulesFollowSelectedRoles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(aggregate("big", "none", "to-big"))
		api.Create(aggregate("small", "to-big", "to-small"))
		api.Create(role("a", "to-small", "get", "list"))
		api.Run(New(api.Deps()))
		verbs := func(when, want string) {
			t.Helper()
			synctest.Wait()
			big, _ := apitest.Get[*rbacv1.ClusterRole](api, "", "big")
			var got []string
			for _, r := range big.Rules {
				got = append(got, r.Verbs...)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s: %v, want %s", when, got, want)
			}
		}
		verbs("at first", "get list")
		b := role("b", "to-big", "list", "delete")
		api.Create(b)
		verbs("with another role that shares a rule", "list delete get")
		apitest.Change(api, role("a", "to-small"), "", func(r *rbacv1.ClusterRole) { r.Rules = r.Rules[:1] })
		verbs("with a role that lost a rule", "list delete get")
		api.Delete(b, "")
		verbs("without the other role", "get")
		apitest.Change(api, aggregate("big", "none", "to-big"), "", func(r *rbacv1.ClusterRole) { r.Rules = nil })
		verbs("after a client removed the rules", "get")
	})
}
