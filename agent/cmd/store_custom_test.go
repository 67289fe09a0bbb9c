package cmd

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/crd"
	"monopod/apiserver/registry/custom"
	"monopod/apiserver/setup"
	"monopod/store"
	"monopod/store/bolt"
	"monopod/store/state"
)

// copyAll runs `store copy` and returns what it prints, or its error.
func copyAll(t *testing.T, from, to string) string {
	t.Helper()
	cmd := storeCommand(func() state.Config { return setup.SharedStores(time.Hour) })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceUsage = true
	cmd.SetArgs([]string{"copy", "--from", from, "--to", to})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func put(t *testing.T, s store.Store, key store.Key, obj store.Object) {
	t.Helper()
	if _, err := s.Update(t.Context(), key, func(store.Object) (store.Object, error) { return obj, nil }); err != nil {
		t.Fatal(err)
	}
}

// TestCopyHasCustomObjects checks that a copy of the state has CustomResourceDefinitions and custom objects.
func TestCopyHasCustomObjects(t *testing.T) {
	t.Parallel()
	from, to := filepath.Join(t.TempDir(), "state.db"), filepath.Join(t.TempDir(), "state.db")
	s, err := bolt.Open(from, setup.Stores())
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, store.Key{Resource: custom.DefinitionsName, Name: "gadgets.example.com"},
		crd.Of(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"}}))
	gadget := custom.New()
	if err := json.Unmarshal(
		[]byte(`{"kind":"Gadget","apiVersion":"example.com/v1","metadata":{"namespace":"ns","name":"a"},"spec":{"size":3}}`),
		gadget); err != nil {
		t.Fatal(err)
	}
	at := store.Key{Resource: "gadgets.example.com", Namespace: "ns", Name: "a"}
	put(t, s, at, gadget)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := copyAll(t, from,
		to), "customresourcedefinitions.apiextensions.k8s.io 1 gadgets.example.com 1 copied 2"; got != want {
		t.Fatalf("copy: %s, want %s", got, want)
	}
	if s, err = bolt.Open(to, setup.Stores()); err != nil {
		t.Fatal(err)
	}
	if e, err := s.Get(t.Context(), at); err != nil || !strings.HasSuffix(string(e.JSON()), `"spec":{"size":3}}`) {
		t.Errorf("the copied object is %v, error %v", e, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := copyAll(t, from,
		to), "contains customresourcedefinitions.apiextensions.k8s.io, gadgets.example.com; use --force"; !strings.Contains(
		got, want) {
		t.Errorf("a second copy: %s, want %s", got, want)
	}
}
