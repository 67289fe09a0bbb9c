package registry_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"monopod/apiserver/auth/token"
	"monopod/apiserver/client"
	"monopod/apiserver/client/clienttest"
	"monopod/apiserver/registry"
	"monopod/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open is a registry over a store in memory, bootstrapped.
func open(t *testing.T) *registry.Registry {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	tokens := token.New(token.Config{KeyFile: filepath.Join(t.TempDir(), "sa.key")})
	r := registry.New(s, resources, registry.Config{Tokens: tokens.Issue})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestClient(t *testing.T) {
	clienttest.Run(t, func(t *testing.T) client.Client { return open(t) })
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	r := open(t)
	before := r.Revision()
	ctx := registry.DryRun(t.Context())
	pod, err := r.Create(ctx, clienttest.Pod("a"))
	if err != nil || pod.GetUID() == "" {
		t.Fatalf("create: %v, %v", pod, err)
	}
	if r.Revision() != before {
		t.Error("a dry run was stored")
	}
	if _, err := r.Create(ctx, clienttest.Pod("Bad_Name")); err == nil {
		t.Error("a dry run did not validate")
	}
}
