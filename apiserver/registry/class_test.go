package registry_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/claim"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry/storage"
)

func TestDefaultClassIsCreatedOncePerCluster(t *testing.T) {
	t.Parallel()
	c := open(t)
	start := func() []*storagev1.StorageClass {
		t.Helper()
		if err := storage.Bootstrap(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		classes, err := client.List[*storagev1.StorageClass](t.Context(), c, client.Selector{})
		if err != nil {
			t.Fatal(err)
		}
		return classes
	}
	classes := start()
	if len(classes) != 1 || !claim.IsDefault(classes[0]) || !claim.WaitsForConsumer(classes[0]) ||
		classes[0].Provisioner != claim.Provisioner {
		t.Fatalf("classes %+v", classes)
	}
	before := c.Revision()
	start()
	if c.Revision() != before {
		t.Error("the second start wrote")
	}
	if _, err := c.Delete(t.Context(), client.RefOf(classes[0]), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if classes := start(); len(classes) != 0 {
		t.Errorf("a deleted class was created again: %v", classes[0].Name)
	}
}

func TestNoSecondDefaultClass(t *testing.T) {
	t.Parallel()
	c := open(t)
	mine := &storagev1.StorageClass{TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		Provisioner: "example.com/x",
		ObjectMeta:  metav1.ObjectMeta{Name: "mine", Annotations: map[string]string{claim.DefaultClass: "true"}}}
	if _, err := c.Create(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	if err := storage.Bootstrap(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), client.Ref{Resource: client.StorageClasses, Name: "standard"}); !apierrors.IsNotFound(
		err) {
		t.Errorf("a second default class was created: %v", err)
	}
}
