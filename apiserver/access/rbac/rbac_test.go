package rbac_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API in memory with its first objects, and an authorizer for it.
func cluster(t *testing.T) (*registry.Registry, *rbac.Authorizer) {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := policy.Bootstrap(t.Context(), reg); err != nil {
		t.Fatal(err)
	}
	z := rbac.New(rbac.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		z.Run(ctx, reg)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return reg, z
}

func create(t *testing.T, c client.Client, objs ...client.Object) {
	t.Helper()
	for _, obj := range objs {
		if _, err := c.Create(t.Context(), obj); err != nil {
			t.Fatalf("%T %s: %v", obj, obj.GetName(), err)
		}
	}
}

func role(namespace, name string, rules ...rbacv1.PolicyRule) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func pods(verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"pods"}}
}

func bind(namespace, name, kind, role string, to ...rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef: rbacv1.RoleRef{Kind: kind, Name: role}, Subjects: to}
}

func ask(t *testing.T, z *rbac.Authorizer, user auth.User, verb, resource, namespace string) (bool, string) {
	t.Helper()
	allowed, reason,
		err := z.Authorize(t.Context(), auth.Attributes{User: user, Verb: verb, Resource: resource, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	return allowed, reason
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, z := cluster(t)
		create(t, api,
			role("default", "reader", pods("get", "list")),
			bind("default", "b", "Role", "reader",
				rbacv1.Subject{Kind: "User", Name: "jane"}, rbacv1.Subject{Kind: "Group", Name: "dev"},
				rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "robot"}),
			bind("kube-system", "dangling", "ClusterRole", "none", rbacv1.Subject{Kind: "User", Name: "jane"}),
		)
		jane, robot := auth.User{Name: "jane"}, auth.User{Name: "system:serviceaccount:kube-system:robot"}
		dev := auth.User{Name: "x", Groups: []string{"ops", "dev"}}
		for _, c := range []struct {
			user                      auth.User
			verb, resource, namespace string
			want                      bool
			reason                    string
		}{
			{jane, "get", "pods", "default", true, `RBAC: allowed by RoleBinding "b/default" of Role "reader" to User "jane"`},
			{dev, "list", "pods", "default", true, `RBAC: allowed by RoleBinding "b/default" of Role "reader" to Group "dev"`},
			{robot, "get", "pods", "default", true, `to ServiceAccount "robot/kube-system"`},
			{jane, "delete", "pods", "default", false, ""},
			{jane, "get", "pods", "kube-public", false, ""},
			{jane, "get", "pods", "", false, ""},
			{auth.User{Name: "dev"}, "get", "pods", "default", false, ""},
			{jane, "get", "pods", "kube-system", false, `RBAC: clusterrole.rbac.authorization.k8s.io "none" not found`},
			{auth.User{Name: "system:kube-scheduler"}, "create", "bindings", "default", true, "system:kube-scheduler"},
		} {
			allowed, reason := ask(t, z, c.user, c.verb, c.resource, c.namespace)
			if allowed != c.want || !strings.Contains(reason, c.reason) || c.reason == "" && reason != "" {
				t.Errorf("%s %s %s in %q: %t, %q", c.user.Name, c.verb, c.resource, c.namespace, allowed, reason)
			}
		}
	})
}

// A write takes effect for the next request.
func TestAuthorizeFollows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api, z := cluster(t)
		jane := auth.User{Name: "jane"}
		can := func(when string, want bool) {
			t.Helper()
			synctest.Wait()
			if got, reason := ask(t, z, jane, "get", "pods", "default"); got != want {
				t.Errorf("%s: %t %s", when, got, reason)
			}
		}
		can("at first", false)
		b := bind("default", "b", "Role", "late", rbacv1.Subject{Kind: "User", Name: "jane"})
		create(t, api, b)
		can("bound to no role", false)
		r := role("default", "late", pods("get"))
		create(t, api, r)
		can("with the role", true)
		if _, err := client.Update(t.Context(), api, r, "", func(r *rbacv1.Role) error {
			r.Rules = []rbacv1.PolicyRule{pods("list")}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		can("with another rule", false)
		for _, obj := range []client.Object{r, b} {
			if _, err := api.Delete(t.Context(), client.RefOf(obj), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		can("with nothing", false)
	})
}

// A request does not wait forever for roles that cannot be listed.
func TestAuthorizeWithoutObjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := rbac.New(rbac.Config{})
		if allowed, _, err := z.Authorize(t.Context(), auth.Attributes{Verb: "get", Path: "/"}); allowed || err == nil {
			t.Errorf("%t, %v", allowed, err)
		}
	})
}

func BenchmarkAuthorize(b *testing.B) {
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	defer s.Close()
	reg := registry.New(s, resources, registry.Config{})
	if err := reg.Bootstrap(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := policy.Bootstrap(b.Context(), reg); err != nil {
		b.Fatal(err)
	}
	z := rbac.New(rbac.Config{})
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); z.Run(ctx, reg) }()
	defer func() { cancel(); <-done }()
	a := auth.Attributes{User: auth.User{Name: "system:kube-scheduler", Groups: []string{auth.Authenticated}}, Verb: "get",
		Group: "storage.k8s.io", Resource: "csidrivers"}
	for b.Loop() {
		if ok, _, err := z.Authorize(ctx, a); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
