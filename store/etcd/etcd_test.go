package etcd_test

import (
	"testing"

	"go.uber.org/goleak"

	"monopod/store"
	"monopod/store/etcd"
	"monopod/store/etcd/etcdtest"
	"monopod/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string) *etcd.Store {
	t.Helper()
	endpoints, err := etcd.Endpoints(url, etcd.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Open(t.Context(), etcd.Config{Config: storetest.Config(), Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEtcd(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, etcdtest.Start(t)) })
}
