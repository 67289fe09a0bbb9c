package apiserver_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/apiserver"
	nodeauth "monopod/apiserver/access/node"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/claim"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/testdata/harness"
)

// serveRBAC is a server that authorizes by stored roles. Any token authenticates the user of that name, with the
// groups after a "+".
func serveRBAC(t *testing.T) API {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	roles := rbac.New(rbac.Config{})
	reg := registry.New(s, resources, registry.Config{Roles: roles})
	for _, err := range []error{reg.Bootstrap(t.Context()), policy.Bootstrap(t.Context(), reg)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- roles.Run(t.Context(), reg) }()
	srv, err := apiserver.New(t.Context(),
		apiserver.Config{Registry: reg, Authorizer: nodeauth.Authorizer{Authorizer: roles, Client: reg},
			Authenticator: auth.Any(auth.Token(token, auth.Admin), named())})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(srv.Handler())
	t.Cleanup(func() {
		h.Close()
		<-done
		s.Close()
	})
	return API{t, h.URL, h.Client(), reg}
}

const roleOf = `{"metadata":{"name":"%s"},"rules":[{"apiGroups":[""],"resources":["%s"],"verbs":["%s"]}]}`

// bindingTo grants a role, KIND/NAME, to a user.
func bindingTo(name, role, user string) string {
	kind, role, _ := strings.Cut(role, "/")
	return fmt.Sprintf(
		`{"metadata":{"name":"%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"%s","name":"%s"},`+
			`"subjects":[{"kind":"User","name":"%s"}]}`,
		name, kind, role, user)
}

const (
	rbacRoles    = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	rbacBindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
	clusterRoles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
)

// until repeats a request until the response has the code: roles take effect a moment after they are written.
func (a API) until(code int, method, path, body string, header ...string) map[string]any {
	a.t.Helper()
	var got int
	var out map[string]any
	if !harness.Eventually(harness.Enough, func() bool {
		got, out = a.read(method, path, body, header...)
		return got == code
	}) {
		a.t.Fatalf("%s %s: %d %v, want %d", method, path, got, out, code)
	}
	return out
}

// Users can only grant permissions that they have.
func TestEscalation(t *testing.T) {
	t.Parallel()
	a := serveRBAC(t)
	joe := "Authorization: Bearer joe"
	a.until(403, "POST", rbacRoles, fmt.Sprintf(roleOf, "x", "pods", "get"), asJSON, joe)
	a.until(201, "POST", rbacRoles, `{"metadata":{"name":"granter"},"rules":[
		{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles","rolebindings"],"verbs":["create","update","patch","get"]},
		{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`, asJSON)
	a.until(201, "POST", rbacRoles, fmt.Sprintf(roleOf, "secrets", "secrets", "get"), asJSON)
	a.until(201, "POST", rbacBindings, bindingTo("joe", "Role/granter", "joe"), asJSON)
	a.until(201, "POST", rbacRoles, fmt.Sprintf(roleOf, "mine", "pods", `get","list`), asJSON, joe)
	for name, c := range map[string]struct{ method, path, body, says string }{
		"a role with more": {"POST", rbacRoles, fmt.Sprintf(roleOf, "more", "secrets", `get","list`),
			"roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"joe\" (groups=[\"system:authenticated\"]) is " +
				"attempting to grant RBAC permissions not currently held:\n" +
				`{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`},
		"an update of a role with more": {"PATCH", rbacRoles + "/mine", fmt.Sprintf(roleOf, "mine", "pods", "*"),
			"not currently held"},
		"a binding to a role with more": {"POST", rbacBindings, bindingTo("b", "Role/secrets", "joe"), "not currently held"},
		"a binding to the admin": {"POST", rbacBindings, bindingTo("b", "ClusterRole/cluster-admin", "joe"),
			"not currently held"},
		"a binding to nothing": {"POST", rbacBindings, bindingTo("b", "Role/none", "joe"),
			`roles.rbac.authorization.k8s.io "none" not found`},
	} {
		_, out := a.read(c.method, c.path, c.body, "Content-Type: application/merge-patch+json", joe)
		if c.method == "POST" {
			_, out = a.read(c.method, c.path, c.body, asJSON, joe)
		}
		if message, _ := out["message"].(string); !strings.Contains(message, c.says) {
			t.Errorf("%s: %q, want %q", name, message, c.says)
		}
	}
	a.until(201, "POST", rbacBindings, bindingTo("to-mine", "Role/mine", "jack"), asJSON, joe)
	a.until(200, "GET", pods, "", "Authorization: Bearer jack")

	// The verbs bind and escalate permit more.
	a.until(201, "POST", rbacRoles, `{"metadata":{"name":"lifter"},"rules":[
		{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["bind"],"resourceNames":["secrets"]},
		{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"verbs":["escalate"],"resourceNames":["mine"]}]}`, asJSON)
	a.until(201, "POST", rbacBindings, bindingTo("joe2", "Role/lifter", "joe"), asJSON)
	a.until(201, "POST", rbacBindings, bindingTo("to-secrets", "Role/secrets", "jack"), asJSON, joe)
	a.until(200, "PATCH", rbacRoles+"/mine", fmt.Sprintf(roleOf, "mine", "pods", "*"),
		"Content-Type: application/merge-patch+json", joe)
}

// An agent can only write its own objects.
func TestNodeRestriction(t *testing.T) {
	t.Parallel()
	a := serveRBAC(t)
	a.until(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"agents"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",`+
			`"name":"system:node"},"subjects":[{"kind":"Group","name":"system:nodes"}]}`, asJSON)
	a.until(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"drivers"},"rules":[{"apiGroups":["resource.k8s.io"],"resources":["resourceslices"],`+
			`"verbs":["create"]},{"apiGroups":[""],"resources":["persistentvolumes","persistentvolumeclaims/status"],`+
			`"verbs":["create","delete","patch"]}]}`,
		asJSON)
	a.until(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"drivers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",`+
			`"name":"drivers"},"subjects":[{"kind":"Group","name":"system:nodes"}]}`, asJSON)
	volumes := "/api/v1/persistentvolumes"
	volume := `{"metadata":{"name":"%s","annotations":{"pv.kubernetes.io/provisioned-by":"%s"}},"spec":{` +
		`"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"storageClassName":"x",` +
		`"local":{"path":"/v"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[` +
		`{"key":"kubernetes.io/hostname","operator":"In","values":["%s"]}]}]}}}}`
	a.until(201, "POST", volumes, fmt.Sprintf(volume, "of-n2", claim.Provisioner, "n2"), asJSON)
	agent := "Authorization: Bearer system:node:n1+system:nodes"
	node := `{"metadata":{"name":"%s"%s}}`
	devices := `{"metadata":{"name":"%s"},"spec":{"driver":"d","pool":{"name":"p","resourceSliceCount":1},%s}}`
	if code, out := a.read("POST", "/api/v1/nodes", `{"metadata":{"name":"n1"},"spec":{"podCIDR":"10.2.0.0/24"}}`, asJSON,
		agent); code != 403 || !strings.Contains(fmt.Sprint(out["message"]), "not allowed to modify podCIDRs") {
		t.Errorf("a node with a range of its choice: %d %v", code, out)
	}
	a.until(201, "POST", "/api/v1/nodes", fmt.Sprintf(node, "n1", ""), asJSON, agent)
	key := `{"metadata":{"annotations":{"monopod.io/wireguard-public-key":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="}}}`
	a.until(201, "POST", "/api/v1/nodes", strings.Replace(key, `{"annotations"`, `{"name":"n3","annotations"`, 1), asJSON)
	for _, n := range []string{"n1", "n2"} {
		a.until(201, "POST", pods, strings.Replace(strings.Replace(podA, `"a"`, `"on-`+n+`"`, 1), `"spec":{`,
			`"spec":{"nodeName":"`+n+
				`","volumes":[{"name":"d","persistentVolumeClaim":{"claimName":"of-`+n+
				`"}},{"name":"c","projected":{"sources":[{"podCertificate":{"signerName":"example.com/s",`+
				`"keyType":"ED25519","keyPath":"k"}}]}}],`, 1), asJSON)
	}
	uid := func(path string) string {
		_, out := a.read("GET", path, "")
		return out["metadata"].(map[string]any)["uid"].(string)
	}
	podUID := func(name string) string { return uid(pods + "/" + name) }
	asks := "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
	ask := fmt.Sprintf(`{"metadata":{"generateName":"r-"},"spec":{"podName":%%q,"signerName":%%q,"podUID":%%q,`+
		`"nodeName":"n1","nodeUID":%q,"serviceAccountName":"default","serviceAccountUID":%q,"stubPKCS10Request":%q}}`,
		uid("/api/v1/nodes/n1"), uid("/api/v1/namespaces/default/serviceaccounts/default"), stubRequest(t))
	status := `{"status":{"phase":"Running"}}`
	claims := "/api/v1/namespaces/default/persistentvolumeclaims"
	for name, in := range map[string]string{"of-n1": "", "of-n2": "", "in-n1": "of-n1", "in-n2": "of-n2"} {
		a.until(201, "POST", claims, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],`+
			`"storageClassName":"x","volumeName":%q,"resources":{"requests":{"storage":"1Gi"}}}}`, name, in), asJSON)
	}
	a.until(201, "POST", volumes, fmt.Sprintf(volume, "of-n1", claim.Provisioner, "n1"), asJSON, agent)
	size := `{"status":{"capacity":{"storage":"1Gi"},"conditions":[{"type":"FileSystemResizePending","status":"True"}],` +
		`"allocatedResources":{"storage":"1Gi"}}}`
	csiNode := `{"metadata":{"name":"%s"},"spec":{"drivers":[]}}`
	lease := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	merge := "Content-Type: application/merge-patch+json"
	for name, c := range map[string]struct {
		method, path, body, typ string
		code                    int
		says                    string
	}{
		"another node": {"POST", "/api/v1/nodes", fmt.Sprintf(node, "n2", ""), asJSON, 403,
			`node "n1" is not allowed to modify node "n2"`},
		"its taints": {"PATCH", "/api/v1/nodes/n1", `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`,
			merge, 403, "not allowed to modify taints"},
		"the range of its pods": {"PATCH", "/api/v1/nodes/n1", `{"spec":{"podCIDR":"10.2.0.0/24","podCIDRs":["10.2.0.0/24"]}}`,
			merge, 403, `node "n1" is not allowed to modify podCIDRs`},
		"another node's WireGuard key": {"PATCH", "/api/v1/nodes/n1", key, merge, 403, `the WireGuard key of node "n3"`},
		"another node's WireGuard key in another form": {"PATCH", "/api/v1/nodes/n1",
			strings.Replace(key, "Hh8=", "Hh9=", 1), merge, 403, `the WireGuard key of node "n3"`},
		"its WireGuard key":      {"PATCH", "/api/v1/nodes/n1", strings.Replace(key, "AAEC", "BAEC", 1), merge, 200, ""},
		"a volume in its folder": {"POST", volumes, fmt.Sprintf(volume, "new", claim.Provisioner, "n1"), asJSON, 201, ""},
		"a volume on another node": {"POST", volumes, fmt.Sprintf(volume, "of-n3", claim.Provisioner, "n3"), asJSON, 403,
			`PersistentVolumes of ` + claim.Provisioner + ` on node "n1"`},
		"a volume of another provisioner": {"POST", volumes, fmt.Sprintf(volume, "of-x", "example.com/x", "n1"), asJSON, 403,
			`PersistentVolumes of ` + claim.Provisioner},
		"another's volume": {"DELETE", volumes + "/of-n2", "", asJSON, 403, `PersistentVolumes of ` + claim.Provisioner},
		"the cluster's labels": {"PATCH", "/api/v1/nodes/n1",
			`{"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}}`, merge, 403, "node-restriction.kubernetes.io/x"},
		"its own labels": {"PATCH", "/api/v1/nodes/n1",
			`{"metadata":{"labels":{"acme.com/x":"y","kubernetes.io/hostname":"n1"}}}`, merge, 200, ""},
		"a pod's status":         {"PATCH", pods + "/on-n1/status", status, merge, 200, ""},
		"another's pod's status": {"PATCH", pods + "/on-n2/status", status, merge, 403, "with spec.nodeName set to itself"},
		"a pod's labels": {"PATCH", pods + "/on-n1/status", `{"metadata":{"labels":{"x":"y"}}}`, merge, 403,
			"cannot update labels"},
		"a pod that is not a mirror pod": {"POST", pods, strings.Replace(podA, `"spec":{`, `"spec":{"nodeName":"n1",`, 1),
			asJSON,
			403, "mirror pods"},
		"a mirror pod": {"POST", pods, strings.Replace(strings.Replace(podA, `"name":"a"`,
			`"name":"m","annotations":{"kubernetes.io/config.mirror":"x"}`, 1),
			`"spec":{`, `"spec":{"nodeName":"n1",`, 1), asJSON, 201, ""},
		"another's pod":           {"DELETE", pods + "/on-n2", "", asJSON, 403, "can only delete pods"},
		"its lease":               {"POST", lease, `{"metadata":{"name":"n1"}}`, asJSON, 201, ""},
		"a claim's size":          {"PATCH", claims + "/of-n1/status", size, merge, 200, ""},
		"its volume's size":       {"PATCH", claims + "/in-n1/status", size, merge, 200, ""},
		"another's claim's size":  {"PATCH", claims + "/of-n2/status", size, merge, 403, "claims that its pods use"},
		"another's volume's size": {"PATCH", claims + "/in-n2/status", size, merge, 403, "claims that its pods use"},
		"a claim's phase": {"PATCH", claims + "/of-n1/status", `{"status":{"phase":"Lost"}}`, merge, 403,
			"other than status.quantity and status.conditions"},
		"a claim's labels": {"PATCH", claims + "/of-n1/status", `{"metadata":{"labels":{"a":"b"}}}`, merge, 403,
			"other than status.quantity and status.conditions"},
		"its CSINode": {"POST", "/apis/storage.k8s.io/v1/csinodes", fmt.Sprintf(csiNode, "n1"), asJSON, 201, ""},
		"another's CSINode": {"POST", "/apis/storage.k8s.io/v1/csinodes", fmt.Sprintf(csiNode, "n2"), asJSON, 403,
			"same name as the requesting node"},
		"another's lease": {"POST", lease, `{"metadata":{"name":"n2"}}`, asJSON, 403, "same name as the requesting node"},
		"a slice of its devices": {"POST", "/apis/resource.k8s.io/v1/resourceslices", fmt.Sprintf(devices, "a",
			`"nodeName":"n1"`), asJSON, 201, ""},
		"another's devices": {"POST", "/apis/resource.k8s.io/v1/resourceslices", fmt.Sprintf(devices, "b",
			`"nodeName":"n2"`), asJSON, 403, `ResourceSlices with spec.nodeName "n1"`},
		"devices of all nodes": {"POST", "/apis/resource.k8s.io/v1/resourceslices", fmt.Sprintf(devices, "c",
			`"allNodes":true`), asJSON, 403, `ResourceSlices with spec.nodeName "n1"`},
		"a certificate": {"POST", asks, fmt.Sprintf(ask, "on-n1", "example.com/s", podUID("on-n1")), asJSON, 201, ""},
		"a certificate without a volume": {"POST", asks, fmt.Sprintf(ask, "on-n1", "example.com/t", podUID("on-n1")), asJSON,
			403, `pod "on-n1" does not have a certificate of signer "example.com/t" in its volumes`},
		"a certificate of another UID": {"POST", asks, fmt.Sprintf(ask, "on-n1", "example.com/s", "x"), asJSON, 403,
			`spec.podUID is "x"`},
		"another node's certificate": {"POST", asks, fmt.Sprintf(ask, "on-n2", "example.com/s", podUID("on-n2")), asJSON,
			403, `the node of the pod is "n2", expected "n1"`},
		"a lease in another namespace": {"POST", strings.Replace(lease, "kube-node-lease", "kube-system", 1),
			`{"metadata":{"name":"n1"}}`, asJSON, 403, "kube-node-lease"},
	} {
		code, out := a.read(c.method, c.path, c.body, c.typ, agent)
		if message, _ := out["message"].(string); code != c.code || !strings.Contains(message, c.says) {
			t.Errorf("%s: %d %v", name, code, out)
		}
	}
}

// stubRequest returns the PKCS#10 request of a new key, in base64.
func stubRequest(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(der)
}

// An agent can only read its own objects, with the selectors that a kubelet uses.
func TestNodesReadOnlyTheirObjects(t *testing.T) {
	t.Parallel()
	a := serveRBAC(t)
	agent := "Authorization: Bearer system:node:n1+system:nodes"
	for _, n := range []string{"n1", "n2"} {
		a.until(201, "POST", "/api/v1/nodes", fmt.Sprintf(`{"metadata":{"name":%q}}`, n), asJSON)
		a.until(201, "POST", "/api/v1/namespaces/default/secrets", fmt.Sprintf(`{"metadata":{"name":"of-%s"}}`, n), asJSON)
		a.until(201, "POST", pods, fmt.Sprintf(`{"metadata":{"name":"on-%s"},"spec":{"nodeName":%[1]q,`+
			`"containers":[{"name":"c","image":"i","envFrom":[{"secretRef":{"name":"of-%[1]s"}}]}]}}`, n), asJSON)
	}
	const none = "no relationship found between node 'n1' and this object"
	for path, says := range map[string]string{
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn1":                                        "",
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn2":                                        "can only list/watch pods with spec.nodeName field selector",
		"/api/v1/pods?fieldSelector=spec.nodeName%3Dn2&fieldSelector=spec.nodeName%3Dn1":       "can only list/watch pods with spec.nodeName field selector",
		"/api/v1/pods?watch=1&timeoutSeconds=1":                                                "can only list/watch pods with spec.nodeName field selector",
		pods + "/on-n1":                                                                        "",
		pods + "/on-n2":                                                                        none,
		"/api/v1/nodes?fieldSelector=metadata.name%3Dn1":                                       "",
		"/api/v1/nodes":                                                                        "cannot read all nodes, only its own Node object",
		"/api/v1/nodes/n2":                                                                     "cannot read 'n2', only its own Node object",
		"/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dof-n1":               "",
		"/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dof-n2":               none,
		"/api/v1/namespaces/default/secrets":                                                   "No Object name found",
		"/apis/certificates.k8s.io/v1/podcertificaterequests?fieldSelector=spec.nodeName%3Dn1": "",
		"/apis/certificates.k8s.io/v1/podcertificaterequests":                                  "can only list/watch podcertificaterequests with spec.nodeName field selector",
		"/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests/r":             none,
		"/api/v1/secrets?fieldSelector=metadata.name%3Dof-n1":                                  "can only read namespaced object of this type",
		"/api/v1/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dof-n1":      "can only read namespaced object of this type",
	} {
		code, out := a.read("GET", path, "", agent)
		message, _ := out["message"].(string)
		if want := map[bool]int{true: 200, false: 403}[says == ""]; code != want || !strings.Contains(message, says) {
			t.Errorf("%s: %d %s", path, code, message)
		}
	}
	review := `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":%s}}}`
	for selector, want := range map[string]bool{
		`{"rawSelector":"spec.nodeName=n1"}`:                                            true,
		`{"requirements":[{"key":"spec.nodeName","operator":"In","values":["n1"]}]}`:    true,
		`{"requirements":[{"key":"spec.nodeName","operator":"NotIn","values":["n1"]}]}`: false,
		`null`: false,
	} {
		_, out := a.read("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", fmt.Sprintf(review, selector),
			asJSON, agent)
		if got := out["status"].(map[string]any)["allowed"]; got != want {
			t.Errorf("review with %s: %v", selector, out)
		}
	}
}

// named authenticates any bearer token as the user that it names.
func named() auth.Authenticator {
	return auth.Func(func(r *http.Request) (auth.User, bool) {
		name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		parts := strings.Split(name, "+")
		return auth.User{Name: parts[0], Groups: append(parts[1:], auth.Authenticated)}, ok
	})
}
