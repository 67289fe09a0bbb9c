package token_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/apiserver/access/token"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

var now = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// cluster is an API that issues tokens, with a clock that the test sets.
type cluster struct {
	*testing.T
	client.Client
	clock  *clocktesting.FakeClock
	issuer *token.Issuer
}

func open(t *testing.T, keyFile string) *cluster {
	t.Helper()
	c := &cluster{T: t, clock: clocktesting.NewFakeClock(now)}
	c.issuer = token.New(token.Config{KeyFile: keyFile, Clock: c.clock})
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	reg := registry.New(s, resources, registry.Config{Tokens: c.issuer.Issue, Clock: c.clock})
	if err := reg.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Client = reg
	return c
}

func newCluster(t *testing.T) *cluster { return open(t, filepath.Join(t.TempDir(), "sa.key")) }

func (c *cluster) create(obj client.Object) client.Object {
	c.Helper()
	out, err := c.Create(c.Context(), obj)
	if err != nil {
		c.Fatalf("%T %s: %v", obj, obj.GetName(), err)
	}
	return out
}

func (c *cluster) remove(obj client.Object) {
	c.Helper()
	if _, err := c.Delete(c.Context(), client.RefOf(obj),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) request(account string,
	spec authenticationv1.TokenRequestSpec) (*authenticationv1.TokenRequest, error) {
	return client.RequestToken(c.Context(), c, "default", account, spec)
}

func (c *cluster) token(account string, spec authenticationv1.TokenRequestSpec) string {
	c.Helper()
	out, err := c.request(account, spec)
	if err != nil {
		c.Fatal(err)
	}
	return out.Status.Token
}

func bearer(ctx context.Context, text string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer "+text)
	return r
}

// known reports whether the token authenticates a user.
func (c *cluster) known(text string) bool {
	_, ok := c.issuer.Authenticator(c).Authenticate(bearer(c.Context(), text))
	return ok
}

func account(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func pod(name, account, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		ServiceAccountName: account, NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func boundTo(kind, name string, uid types.UID) authenticationv1.TokenRequestSpec {
	return authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1",
		Kind: kind, Name: name, UID: uid}}
}

func TestHolder(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	robot := c.create(account("robot"))
	node := c.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	p := c.create(pod("p", "robot", "n1"))
	out, err := c.request("robot", boundTo("Pod", "p", p.GetUID()))
	if err != nil {
		t.Fatal(err)
	}
	if got := out.Status.ExpirationTimestamp.Time; !got.Equal(now.Add(time.Hour)) || *out.Spec.ExpirationSeconds != 3600 {
		t.Errorf("ends at %v", got)
	}
	u, ok := c.issuer.Authenticator(c).Authenticate(bearer(t.Context(), out.Status.Token))
	if !ok || u.Name != "system:serviceaccount:default:robot" || u.UID != string(robot.GetUID()) ||
		strings.Join(u.Groups, " ") != "system:serviceaccounts system:serviceaccounts:default system:authenticated" {
		t.Errorf("%t %+v", ok, u)
	}
	for key, want := range map[string]string{"pod-name": "p", "pod-uid": string(p.GetUID()), "node-name": "n1",
		"node-uid": string(node.GetUID())} {
		if got := u.Extra["authentication.kubernetes.io/"+key]; !slices.Equal(got, []string{want}) {
			t.Errorf("%s: %v, want %s", key, got, want)
		}
	}
	if id := u.Extra["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "JTI=") {
		t.Errorf("id %v", id)
	}
}

// TestTokenEnds checks which events make a token invalid.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec authenticationv1.TokenRequestSpec
		do   func(c *cluster)
		want bool
	}{
		"nothing happens":      {do: func(*cluster) {}, want: true},
		"near its expiration":  {do: func(c *cluster) { c.clock.Step(time.Hour) }, want: true},
		"after its expiration": {do: func(c *cluster) { c.clock.Step(time.Hour + 2*time.Minute) }},
		"clock stepped back":   {do: func(c *cluster) { c.clock.SetTime(time.Unix(0, 0)) }, want: true},
		"account deleted":      {do: func(c *cluster) { c.remove(account("robot")) }},
		"account recreated":    {do: func(c *cluster) { c.remove(account("robot")); c.create(account("robot")) }},
		"bound pod exists":     {spec: boundTo("Pod", "p", ""), do: func(*cluster) {}, want: true},
		"bound pod deleted":    {spec: boundTo("Pod", "p", ""), do: func(c *cluster) { c.remove(pod("p", "", "")) }},
		"bound pod recreated": {spec: boundTo("Pod", "p", ""),
			do: func(c *cluster) { c.remove(pod("p", "", "")); c.create(pod("p", "robot", "n1")) }},
		"bound pod terminating": {spec: boundTo("Pod", "p", ""), do: func(c *cluster) { c.terminate() }, want: true},
		"bound pod terminating for 3 minutes": {spec: boundTo("Pod", "p", ""),
			do: func(c *cluster) { c.terminate(); c.clock.Step(3 * time.Minute) }},
		"unbound pod deleted": {do: func(c *cluster) { c.remove(pod("p", "", "")) }, want: true},
		"node of bound pod deleted": {spec: boundTo("Pod", "p", ""),
			do: func(c *cluster) { c.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}) }, want: true},
		"bound node deleted": {spec: boundTo("Node", "n1", ""),
			do: func(c *cluster) { c.remove(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}) }},
		"bound secret deleted": {spec: boundTo("Secret", "s", ""), do: func(c *cluster) { c.remove(secret("s")) }},
		"bound secret exists":  {spec: boundTo("Secret", "s", ""), do: func(*cluster) {}, want: true},
		"for another audience": {spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}},
			do: func(*cluster) {}},
		"for two audiences": {spec: authenticationv1.TokenRequestSpec{Audiences: []string{"vault", auth.Audience}},
			do: func(*cluster) {}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t)
			cl.create(account("robot"))
			cl.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
			cl.create(pod("p", "robot", "n1"))
			cl.create(secret("s"))
			text := cl.token("robot", c.spec)
			cl.known(text) // a cached signature must not matter
			c.do(cl)
			if got := cl.known(text); got != c.want {
				t.Errorf("known: %t", got)
			}
		})
	}
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func (c *cluster) terminate() {
	c.Helper()
	if _, err := c.Delete(c.Context(), client.RefOf(pod("p", "", "")), metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// Tokens that this server did not sign, and tokens that were altered, are invalid.
func TestForged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.create(account("robot"))
	good := c.token("robot", authenticationv1.TokenRequestSpec{})
	parts := strings.Split(good, ".")
	other := newCluster(t)
	other.create(account("robot"))
	unsigned, err := jwt.Signed(none{}).Claims(map[string]any{"iss": auth.Audience}).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"of another installation": other.token("robot", authenticationv1.TokenRequestSpec{}),
		"without a signature":     parts[0] + "." + parts[1] + ".",
		"with other claims": parts[0] + "." + strings.Split(c.token("robot", authenticationv1.TokenRequestSpec{}),
			".")[1] + "." + parts[2],
		"without an algorithm": unsigned,
		"three words":          "a.b.c",
		"empty":                "",
	} {
		if c.known(text) {
			t.Errorf("%s: the token is accepted", name)
		}
	}
	if !c.known(good) {
		t.Error("the valid token is refused")
	}
}

// none is a signer that does not sign.
type none struct{}

func (none) Sign(payload []byte) (*jose.JSONWebSignature, error) {
	return jose.ParseSignedCompact("eyJhbGciOiJub25lIn0.e30.", []jose.SignatureAlgorithm{"none"})
}
func (none) Options() jose.SignerOptions { return jose.SignerOptions{} }

func TestRefusedRequests(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.create(account("robot"))
	c.create(account("other"))
	c.create(secret("s"))
	c.create(pod("p", "other", "n1"))
	for name, try := range map[string]struct {
		account string
		spec    authenticationv1.TokenRequestSpec
		is      func(error) bool
	}{
		"too short": {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(599))}, apierrors.IsInvalid},
		"too long": {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(1<<32 + 1))},
			apierrors.IsInvalid},
		"no such account":      {"none", authenticationv1.TokenRequestSpec{}, apierrors.IsNotFound},
		"no such pod":          {"robot", boundTo("Pod", "none", ""), apierrors.IsNotFound},
		"another's pod":        {"robot", boundTo("Pod", "p", ""), apierrors.IsBadRequest},
		"another kind":         {"robot", boundTo("ConfigMap", "p", ""), apierrors.IsBadRequest},
		"another secret's uid": {"robot", boundTo("Secret", "s", "1"), apierrors.IsConflict},
	} {
		if out, err := c.request(try.account, try.spec); !try.is(err) {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// The key survives a restart, and others can verify tokens with the published key.
func TestPublishedKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "sa.key")
	c := open(t, file)
	c.create(account("robot"))
	text := c.token("robot", authenticationv1.TokenRequestSpec{})
	again := token.New(token.Config{KeyFile: file, Clock: c.clock})
	if _, ok := again.Authenticator(c).Authenticate(bearer(t.Context(), text)); !ok {
		t.Error("the token is not accepted after a restart")
	}
	w := httptest.NewRecorder()
	again.Keys(w, nil)
	var keys jose.JSONWebKeySet
	if err := json.NewDecoder(w.Body).Decode(&keys); err != nil || len(keys.Keys) != 1 || !keys.Keys[0].IsPublic() {
		t.Fatalf("%+v, %v", keys, err)
	}
	parsed, err := jwt.ParseSigned(text, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		t.Fatal(err)
	}
	var claims jwt.Claims
	if err := parsed.Claims(keys, &claims); err != nil || claims.Subject != "system:serviceaccount:default:robot" {
		t.Errorf("%+v, %v", claims, err)
	}
	w = httptest.NewRecorder()
	again.Configuration(w, httptest.NewRequest(http.MethodGet, "https://here:6443/", nil))
	if !bytes.Contains(w.Body.Bytes(), []byte(`"jwks_uri":"https://here:6443/openid/v1/jwks"`)) {
		t.Errorf("%s", w.Body)
	}
}

func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	const good = "abcdef.0123456789abcdef"
	for name, c := range map[string]struct {
		change func(map[string]string)
		token  string
		want   string // groups
	}{
		"good": {func(map[string]string) {}, good, "system:bootstrappers system:authenticated"},
		"groups": {func(d map[string]string) { d["auth-extra-groups"] = "system:bootstrappers:a,system:masters" },
			good, "system:bootstrappers system:bootstrappers:a system:authenticated"},
		"not expired": {func(d map[string]string) { d["expiration"] = "2026-05-01T00:00:01Z" }, good,
			"system:bootstrappers system:authenticated"},
		"expired":                  {func(d map[string]string) { d["expiration"] = "2026-05-01T00:00:00Z" }, good, ""},
		"invalid expiration":       {func(d map[string]string) { d["expiration"] = "soon" }, good, ""},
		"not for authentication":   {func(d map[string]string) { delete(d, "usage-bootstrap-authentication") }, good, ""},
		"another id in the Secret": {func(d map[string]string) { d["token-id"] = "abcdeg" }, good, ""},
		"wrong":                    {func(map[string]string) {}, "abcdef.0123456789abcdeg", ""},
		"unknown":                  {func(map[string]string) {}, "abcdeg.0123456789abcdef", ""},
		"malformed":                {func(map[string]string) {}, "../x.0123456789abcdef", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := newCluster(t)
			data := map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef",
				"usage-bootstrap-authentication": "true"}
			c.change(data)
			cl.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
				Type: "bootstrap.kubernetes.io/token", StringData: data})
			u, ok := token.Bootstrap(cl, cl.clock).Authenticate(bearer(t.Context(), c.token))
			if got := strings.Join(u.Groups, " "); got != c.want || ok != (c.want != "") || ok &&
				u.Name != "system:bootstrap:abcdef" {
				t.Errorf("%t %+v", ok, u)
			}
		})
	}
}
