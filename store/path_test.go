package store_test

import (
	"testing"

	"monopod/store"
)

// The paths are those under which etcd holds the objects of a kube-apiserver.
func TestPath(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]store.Key{
		"/registry/pods/default/web":                     {Resource: "pods", Namespace: "default", Name: "web"},
		"/registry/namespaces/default":                   {Resource: "namespaces", Name: "default"},
		"/registry/minions/node1":                        {Resource: "nodes", Name: "node1"},
		"/registry/leases/kube-node-lease/node1":         {Resource: "leases", Namespace: "kube-node-lease", Name: "node1"},
		"/registry/events/default/web.17":                {Resource: "events", Namespace: "default", Name: "web.17"},
		"/registry/services/specs/default/web":           {Resource: "services", Namespace: "default", Name: "web"},
		"/registry/services/endpoints/default/web":       {Resource: "endpoints", Namespace: "default", Name: "web"},
		"/registry/controllers/default/web":              {Resource: "replicationcontrollers", Namespace: "default", Name: "web"},
		"/registry/ingress/default/web":                  {Resource: "ingresses", Namespace: "default", Name: "web"},
		"/registry/priorityclasses/system-node-critical": {Resource: "priorityclasses", Name: "system-node-critical"},
	} {
		if got := key.Path(); got != want {
			t.Errorf("%v: path %s, want %s", key, got, want)
		}
		if got, ok := store.ParsePath(want); !ok || got != key {
			t.Errorf("%s: key %v, %v, want %v", want, got, ok, key)
		}
	}
}

func TestParsePathRefuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "/registry", "/registry/", "/registry/pods", "/registry/pods/", "/registry/pods//a", "/registry/pods/a/",
		"/registry/pods/a/b/c", "/registry/services/default/a", "/registry/services/specs", "/registry/nodes/a",
		"registry/pods/a/b", "/elsewhere/pods/a/b", "compact_rev_key",
	} {
		if key, ok := store.ParsePath(path); ok {
			t.Errorf("%q is %v", path, key)
		}
	}
}
