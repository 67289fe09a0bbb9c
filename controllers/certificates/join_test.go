package certificates

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

// bootstrapToken returns the Secret of the token abcdef.
func bootstrapToken(data map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type: "bootstrap.kubernetes.io/token", Data: map[string][]byte{"token-id": []byte("abcdef")}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return s
}

// joins returns the request of a machine that joins as the node, with the token abcdef.
func joins(t *testing.T, name, node string) *request {
	t.Helper()
	return asked(t, name, certificatesv1.KubeAPIServerClientKubeletSignerName, nodeRequest(node),
		func(r *request) { r.Spec.Username = "system:bootstrap:abcdef" })
}

func nodeRequest(name string) x509.CertificateRequest { return node("system:node:" + name) }

// again returns the request of r under another name.
func again(r *request, name string) *request {
	next := r.DeepCopy()
	next.ObjectMeta = metav1.ObjectMeta{Name: name}
	return next
}

// approves runs the controller for users who may request the certificates of nodes.
func approves(api *apitest.API) {
	api.Run(NewApproving(api.Deps(), func(_ context.Context, by *certificatesv1.CertificateSigningRequestSpec,
		subresource string) (bool, error) {
		return strings.HasPrefix(by.Username, "system:bootstrap:") && subresource == "nodeclient", nil
	}))
}

// message returns the message of the first condition.
func message(api *apitest.API, name string) string {
	r, _ := apitest.Get[*request](api, "", name)
	return r.Status.Conditions[0].Message
}

func TestJoining(t *testing.T) {
	t.Parallel()
	in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
	for name, c := range map[string]struct {
		token     func() map[string]string // nil: there is none
		node      string
		want      string
		says      string
		uses      string // afterwards
		expiresIn time.Duration
	}{
		"without a limit": {token: func() map[string]string { return map[string]string{} }, node: "n2",
			want: "Approved AutoApproved"},
		"with uses": {token: func() map[string]string { return map[string]string{"uses": "3"} }, node: "n2",
			want: "Approved AutoApproved", uses: "2"},
		"the last use": {token: func() map[string]string { return map[string]string{"uses": "1"} }, node: "n2",
			want: "Approved AutoApproved", uses: "0", expiresIn: fetchTime},
		"the last use of a token that expires later": {node: "n2",
			token: func() map[string]string { return map[string]string{"uses": "1", "expiration": in(time.Hour)} },
			want:  "Approved AutoApproved", uses: "0", expiresIn: fetchTime},
		"the last use of a token that expires sooner": {node: "n2",
			token: func() map[string]string { return map[string]string{"uses": "1", "expiration": in(time.Minute)} },
			want:  "Approved AutoApproved", uses: "0", expiresIn: time.Minute},
		"without uses": {token: func() map[string]string { return map[string]string{"uses": "0"} }, node: "n2",
			want: "Denied TokenGone", says: "token abcdef has no uses left", uses: "0"},
		"uses that are not a number": {token: func() map[string]string { return map[string]string{"uses": "many"} }, node: "n2",
			want: "Denied TokenGone", says: "no uses left", uses: "many"},
		"expired": {node: "n2",
			token: func() map[string]string { return map[string]string{"uses": "2", "expiration": in(-time.Second)} },
			want:  "Denied TokenGone", says: "token abcdef has expired", uses: "2"},
		"deleted": {node: "n2", want: "Denied TokenGone", says: "token abcdef was deleted"},
		"a node that exists": {token: func() map[string]string { return map[string]string{"uses": "2"} }, node: "n1",
			want: "Denied NodeExists", says: "kubectl delete node n1", uses: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
				if c.token != nil {
					api.Create(bootstrapToken(c.token()))
				}
				approves(api)
				api.Create(joins(t, "r", c.node))
				synctest.Wait()
				if got := state(api, "r"); got != c.want || !strings.Contains(message(api, "r"), c.says) {
					t.Errorf("%q (%s), want %q (%s)", got, message(api, "r"), c.want, c.says)
				}
				token, _ := apitest.Get[*corev1.Secret](api, "kube-system", "bootstrap-token-abcdef")
				if c.token == nil {
					return
				}
				if got := string(token.Data["uses"]); got != c.uses {
					t.Errorf("uses %q, want %q", got, c.uses)
				}
				if at := in(c.expiresIn); c.expiresIn > 0 && string(token.Data["expiration"]) != at {
					t.Errorf("expires at %s, want %s", token.Data["expiration"], at)
				}
			})
		})
	}
}

// Of two machines that join with the same name at the same time, one gets the certificate. It may request it again, and
// the name is free a minute later if no Node was made.
func TestJoiningWithTheSameName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(bootstrapToken(map[string]string{"uses": "9"}))
		approves(api)
		first, second := joins(t, "first", "n2"), joins(t, "second", "n2")
		api.Create(first, second, again(first, "again"), joins(t, "other", "n3"))
		apitest.Settle(2 * nameTime)
		api.Create(again(second, "later"))
		synctest.Wait()
		for name, want := range map[string]string{"first": "Approved AutoApproved", "second": "Denied NameTaken",
			"again": "Approved AutoApproved", "other": "Approved AutoApproved", "later": "Approved AutoApproved"} {
			if got := state(api, name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		// A replayed request does not take over the node.
		api.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}})
		api.Create(again(second, "replayed"))
		synctest.Wait()
		if got := state(api, "replayed"); got != "Denied NodeExists" {
			t.Errorf("replayed: %q", got)
		}
	})
}

// serves returns the request of node n for a serving certificate with these names and addresses.
func serves(t *testing.T, name string, dns []string, ips []net.IP, change ...func(*request)) *request {
	t.Helper()
	x := nodeRequest("n")
	x.DNSNames, x.IPAddresses = dns, ips
	return asked(t, name, certificatesv1.KubeletServingSignerName, x, append([]func(*request){
		with(certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature),
		func(r *request) { r.Spec.Groups = []string{"system:nodes", "system:authenticated"} }}, change...)...)
}

func nodeAt(name string, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestApprovingServing(t *testing.T) {
	t.Parallel()
	const approved = "Approved AutoApproved"
	own, shared, foreign := net.ParseIP("10.0.0.1"), net.ParseIP("10.0.0.9"), net.ParseIP("10.0.0.2")
	for name, c := range map[string]struct {
		dns    []string
		ips    []net.IP
		change func(*request)
		want   string
	}{
		"its addresses":              {dns: []string{"N.local"}, ips: []net.IP{own, net.ParseIP("fd00::1")}, want: approved},
		"an unknown address":         {ips: []net.IP{own, net.ParseIP("10.96.0.1")}},
		"an unknown name":            {dns: []string{"kubernetes"}, ips: []net.IP{own}},
		"another node's":             {ips: []net.IP{foreign}},
		"that another node has, too": {ips: []net.IP{own, shared}},
		"another user":               {ips: []net.IP{own}, change: func(r *request) { r.Spec.Username = "system:node:m" }},
		"not in the group":           {ips: []net.IP{own}, change: func(r *request) { r.Spec.Groups = nil }},
		"with key encipherment": {ips: []net.IP{own}, want: approved, change: with(certificatesv1.UsageServerAuth,
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment)},
		"for clients, too": {ips: []net.IP{own}, change: with(certificatesv1.UsageServerAuth,
			certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Create(nodeAt("n", "10.0.0.1", "10.0.0.9", "fd00:0::1", "n.local"), nodeAt("m", "10.0.0.2", "10.0.0.9"))
				approves(api)
				r := serves(t, "r", c.dns, c.ips)
				if c.change != nil {
					c.change(r)
				}
				api.Create(r)
				apitest.Settle(2 * addressTime)
				if got := state(api, "r"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// A kubelet may report its addresses after the request.
func TestApprovingServingOfNewNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		approves(api)
		api.Create(serves(t, "r", nil, []net.IP{net.ParseIP("10.0.0.1")}))
		apitest.Settle(addressTime / 2)
		api.Create(nodeAt("n", "10.0.0.1"))
		if apitest.Settle(addressRetry); state(api, "r") != "Approved AutoApproved" {
			t.Errorf("%q", state(api, "r"))
		}
	})
}

// The authority of the cluster does not sign serving certificates of nodes. A node gets a client certificate of up to
// ten years if it requests that.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	signs := func(name string) Sign {
		return func(template x509.Certificate, public any) ([]byte, error) {
			template.EmailAddresses = []string{name}
			return authority(t)(template, public)
		}
	}
	const day, year = 24 * 3600, 365 * 24 * 3600
	seconds := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		r    *request
		by   string
		asks *int32
		days int
		any  bool // the certificate has no begin
	}{
		"node":                   {joins(t, "r", "n"), "cluster", nil, 30, false},
		"node for a day":         {joins(t, "r", "n"), "cluster", seconds(day), 1, false},
		"node for nine years":    {joins(t, "r", "n"), "cluster", seconds(9 * year), 9 * 365, true},
		"node for too long":      {joins(t, "r", "n"), "cluster", seconds(20 * year), 10 * 365, true},
		"serving":                {serves(t, "r", []string{"n"}, nil), "kubelet", nil, 30, false},
		"serving for nine years": {serves(t, "r", []string{"n"}, nil), "kubelet", seconds(9 * year), 30, false},
		"user that is no node, long": {asked(t, "r", certificatesv1.KubeAPIServerClientSignerName, node("jane")), "cluster",
			seconds(9 * year), 30, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Run(NewSigning(api.Deps(), Authorities{Cluster: signs("cluster"), Kubelet: signs("kubelet")}, 30*24*time.Hour))
				c.r.Spec.ExpirationSeconds = c.asks
				api.Create(c.r)
				decide(api, c.r, certificatesv1.CertificateApproved)
				got, _ := apitest.Get[*request](api, "", "r")
				block, _ := pem.Decode(got.Status.Certificate)
				if block == nil {
					t.Fatal(state(api, "r"))
				}
				x, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				if days := int(time.Until(x.NotAfter).Round(time.Hour).Hours() / 24); days != c.days ||
					x.EmailAddresses[0] != c.by {
					t.Errorf("signed by %v for %d days, want %s for %d", x.EmailAddresses, days, c.by, c.days)
				}
				// A kubelet renews a certificate after 70 to 90 % of this time.
				if age := time.Since(x.NotBefore); (age > 6*time.Minute) != c.any {
					t.Errorf("valid since %v", age)
				}
			})
		})
	}
}
