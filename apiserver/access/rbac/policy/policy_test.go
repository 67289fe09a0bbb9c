package policy_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/clusterrole"
	"monopod/apiserver/registry"
	"monopod/apiserver/registry/kind"
	"monopod/store"
)

func cluster(t *testing.T) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return reg
}

func bootstrap(t *testing.T, c client.Client) {
	t.Helper()
	if err := policy.Bootstrap(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func get[T client.Object](t *testing.T, c client.Client, namespace, name string) T {
	t.Helper()
	obj, err := client.Get[T](t.Context(), c, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// The objects of the file pass validation.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	api := cluster(t)
	bootstrap(t, api)
	admin := get[*rbacv1.ClusterRole](t, api, "", "cluster-admin")
	want := []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
	if !equality.Semantic.DeepEqual(admin.Rules, want) {
		t.Errorf("cluster-admin: %v", admin.Rules)
	}
	edit := get[*rbacv1.ClusterRole](t, api, "", "edit")
	if edit.Labels["rbac.authorization.k8s.io/aggregate-to-admin"] != "true" ||
		len(edit.AggregationRule.ClusterRoleSelectors) != 1 {
		t.Errorf("edit: %+v", edit)
	}
	scheduler := get[*rbacv1.ClusterRole](t, api, "", "system:kube-scheduler")
	if r := scheduler.Rules[2]; len(r.ResourceNames) != 1 || r.ResourceNames[0] != "kube-scheduler" ||
		r.APIGroups[0] != "coordination.k8s.io" {
		t.Errorf("scheduler's lease: %v", r)
	}
	metrics := get[*rbacv1.ClusterRole](t, api, "", "system:aggregated-metrics-reader")
	if metrics.Rules[0].APIGroups[0] != "metrics.k8s.io" ||
		metrics.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" ||
		metrics.Labels["rbac.authorization.k8s.io/aggregate-to-admin"] != "true" {
		t.Errorf("metrics: %+v", metrics)
	}
	dns := get[*rbacv1.ClusterRoleBinding](t, api, "", "system:kube-dns")
	if len(dns.Subjects) != 1 ||
		dns.Subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "kube-dns"}) {
		t.Errorf("kube-dns: %v", dns.Subjects)
	}
	locking := get[*rbacv1.RoleBinding](t, api, "kube-system", "system::leader-locking-kube-scheduler")
	if locking.RoleRef.Kind != "Role" || len(locking.Subjects) != 2 {
		t.Errorf("locking: %+v", locking)
	}
	before := api.Revision()
	bootstrap(t, api)
	if now := api.Revision(); now != before {
		t.Errorf("a second start wrote: revision %d, was %d", now, before)
	}
}

// Aggregated roles can be used at once: the first start leaves nothing for their controller to do.
func TestAggregatedRolesHaveRules(t *testing.T) {
	t.Parallel()
	api := cluster(t)
	bootstrap(t, api)
	roles, err := client.List[*rbacv1.ClusterRole](t.Context(), api, client.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"admin", "edit", "view"} {
		role := get[*rbacv1.ClusterRole](t, api, "", name)
		want, err := clusterrole.Aggregate(role, roles)
		if err != nil || len(want) == 0 || !equality.Semantic.DeepEqual(role.Rules, want) {
			t.Errorf("%s has %d rules, its controller would give it %d, %v", name, len(role.Rules), len(want), err)
		}
	}
}

// A start restores what was removed, keeps what was added, and skips objects that opted out.
func TestBootstrapRepairs(t *testing.T) {
	t.Parallel()
	api := cluster(t)
	bootstrap(t, api)
	more := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}
	change := func(name string, do func(*rbacv1.ClusterRole)) {
		t.Helper()
		if _, err := client.Update(t.Context(), api, get[*rbacv1.ClusterRole](t, api, "", name), "",
			func(r *rbacv1.ClusterRole) error {
				do(r)
				return nil
			}); err != nil {
			t.Fatal(err)
		}
	}
	change("system:basic-user", func(r *rbacv1.ClusterRole) { r.Rules = append(r.Rules[:1], more) })
	change("system:discovery", func(r *rbacv1.ClusterRole) {
		r.Annotations[rbacv1.AutoUpdateAnnotationKey], r.Rules = "false", nil
	})
	change("view", func(r *rbacv1.ClusterRole) { r.Rules = []rbacv1.PolicyRule{more} })
	b := get[*rbacv1.ClusterRoleBinding](t, api, "", "cluster-admin")
	if _, err := api.Delete(t.Context(), client.RefOf(b), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b = &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}}
	if _, err := api.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	bootstrap(t, api)
	basic := get[*rbacv1.ClusterRole](t, api, "", "system:basic-user")
	if len(basic.Rules) != 3 || !equality.Semantic.DeepEqual(basic.Rules[1], more) ||
		basic.Rules[2].Resources[0] != "selfsubjectreviews" {
		t.Errorf("basic-user: %v", basic.Rules)
	}
	if r := get[*rbacv1.ClusterRole](t, api, "", "system:discovery"); len(r.Rules) != 0 {
		t.Errorf("discovery opted out and got %v", r.Rules)
	}
	if r := get[*rbacv1.ClusterRole](t, api, "", "view"); len(r.Rules) != 1 {
		t.Errorf("the rules of an aggregate are its controller's: %v", r.Rules)
	}
	if b := get[*rbacv1.ClusterRoleBinding](t, api, "", "cluster-admin"); b.RoleRef.Name != "cluster-admin" ||
		len(b.Subjects) != 1 {
		t.Errorf("binding: %+v", b)
	}
}

// The holder of view.token reads every kind and its subresources, except Secrets and what opens a stream, and changes
// nothing.
func TestViewer(t *testing.T) {
	t.Parallel()
	all, err := policy.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(o client.Object) bool { return o.GetName() == "system:monopod:viewer" })
	rules := all[at].(*rbacv1.ClusterRole).Rules
	hidden := []string{"secrets", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy",
		"nodes/proxy"}
	check := func(res *kind.Resource, sub string, verbs []string) {
		name := res.GVR.Resource
		if sub != "" {
			name += "/" + sub
		}
		for _, verb := range verbs {
			a := auth.Attributes{Verb: verb, Group: res.GVR.Group, Version: res.GVR.Version, Resource: res.GVR.Resource,
				Subresource: sub}
			want := slices.Contains([]string{"get", "list", "watch"}, verb) &&
				(res.GVR.Group != "" || !slices.Contains(hidden, name))
			if rbac.Allows(rules, &a) != want {
				t.Errorf("%s %s.%s: want %t", verb, name, res.GVR.Group, want)
			}
		}
	}
	for _, res := range registry.Resources() {
		check(&res, "", res.VerbList())
		for _, sub := range res.Subresources {
			check(&res, sub.Name, sub.VerbList())
		}
	}
}
