package store_test

import (
	"testing"

	"monopod/store"
)

// The paths equal those of a kube-apiserver's objects in etcd, which upstream lists in test/integration/etcd/data.go.
func TestPath(t *testing.T) {
	t.Parallel()
	for resource, dir := range map[string]string{
		// namespaced
		"pods": "pods", "configmaps": "configmaps", "secrets": "secrets", "serviceaccounts": "serviceaccounts",
		"services": "services/specs", "endpoints": "services/endpoints", "endpointslices": "endpointslices",
		"replicationcontrollers": "controllers", "podtemplates": "podtemplates",
		"deployments": "deployments", "replicasets": "replicasets", "daemonsets": "daemonsets",
		"statefulsets":        "statefulsets",
		"controllerrevisions": "controllerrevisions", "jobs": "jobs", "cronjobs": "cronjobs",
		"limitranges": "limitranges", "resourcequotas": "resourcequotas", "persistentvolumeclaims": "persistentvolumeclaims",
		"ingresses": "ingress", "networkpolicies": "networkpolicies", "poddisruptionbudgets": "poddisruptionbudgets",
		"roles": "roles", "rolebindings": "rolebindings", "horizontalpodautoscalers": "horizontalpodautoscalers",
		"events": "events", "leases": "leases", "csistoragecapacities": "csistoragecapacities",
		"widgets.example.com": "example.com/widgets", "certificates.cert-manager.io": "cert-manager.io/certificates",
	} {
		checkPath(t, "/registry/"+dir+"/default/web.17", store.Key{Resource: resource, Namespace: "default", Name: "web.17"})
	}
	for resource, dir := range map[string]string{
		// not namespaced
		"namespaces": "namespaces", "nodes": "minions", "persistentvolumes": "persistentvolumes",
		"storageclasses": "storageclasses",
		"ingressclasses": "ingressclasses", "clusterroles": "clusterroles", "clusterrolebindings": "clusterrolebindings",
		"priorityclasses": "priorityclasses", "runtimeclasses": "runtimeclasses", "csidrivers": "csidrivers",
		"csinodes":          "csinodes",
		"volumeattachments": "volumeattachments", "certificatesigningrequests": "certificatesigningrequests",
		"validatingwebhookconfigurations":                "validatingwebhookconfigurations",
		"customresourcedefinitions.apiextensions.k8s.io": "apiextensions.k8s.io/customresourcedefinitions",
		"apiservices.apiregistration.k8s.io":             "apiregistration.k8s.io/apiservices",
	} {
		checkPath(t, "/registry/"+dir+"/system:one", store.Key{Resource: resource, Name: "system:one"})
	}
}

func checkPath(t *testing.T, want string, key store.Key) {
	t.Helper()
	if got := key.Path(); got != want {
		t.Errorf("%v: path %s, want %s", key, got, want)
	}
	if got, ok := store.ParsePath(want); !ok || got != key {
		t.Errorf("%s: key %v, %v, want %v", want, got, ok, key)
	}
	if dir := store.ResourcePath(key.Resource, key.Namespace); dir+key.Name != want {
		t.Errorf("%v is in %s, want %s", key, dir, want)
	}
}

func TestParsePathRefuses(t *testing.T) {
	t.Parallel()
	for _, path := range []string{
		"", "/registry", "/registry/", "/registry/pods", "/registry/pods/", "/registry/pods//a", "/registry/pods/a/",
		"/registry/pods/a/b/c", "/registry/services/default/a", "/registry/services/specs", "/registry/nodes/a",
		"/registry/services/other/a/b", "/registry/endpoints/a/b", "/registry/ingresses/a/b",
		"/registry/replicationcontrollers/a/b",
		"/registry/example.com", "/registry/example.com/", "/registry/example.com//a", "/registry/example.com/widgets",
		"/registry//a",
		"registry/pods/a/b", "/elsewhere/pods/a/b", "compact_rev_key",
	} {
		if key, ok := store.ParsePath(path); ok {
			t.Errorf("%q is %v", path, key)
		}
	}
}
