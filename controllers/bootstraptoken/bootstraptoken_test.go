package bootstraptoken

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bootstrap returns a token that is valid for signing and expires after in; 0: never.
func bootstrap(id string, in time.Duration) *corev1.Secret {
	s := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system",
			Name: bootstrapapi.BootstrapTokenSecretPrefix + id}, Type: bootstrapapi.SecretTypeBootstrapToken,
		Data: map[string][]byte{"token-id": []byte(id), "token-secret": []byte(id + "0123456789"),
			"usage-bootstrap-signing": []byte("true")},
	}
	if in != 0 {
		s.Data["expiration"] = []byte(time.Now().Add(in).UTC().Format(time.RFC3339))
	}
	return s
}

func left(api *apitest.API) (out []string) {
	for _, s := range apitest.List[*corev1.Secret](api, "") {
		out = append(out, strings.TrimPrefix(s.Name, bootstrapapi.BootstrapTokenSecretPrefix))
	}
	slices.Sort(out)
	return out
}

func TestTokensExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Create(bootstrap("before", -time.Hour), bootstrap("hour00", time.Hour), bootstrap("day000", 24*time.Hour),
			bootstrap("never0", 0))
		other := bootstrap("opaque", -time.Hour)
		other.Type = corev1.SecretTypeOpaque
		elsewhere := bootstrap("elsewh", -time.Hour)
		elsewhere.Namespace = "default"
		broken := bootstrap("broken", 0)
		broken.Data["expiration"] = []byte("tomorrow")
		api.Create(other, elsewhere, broken)
		api.Run(NewCleaner(api.Deps()))
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{0, "day000 elsewh hour00 never0 opaque"},
			{59 * time.Minute, "day000 elsewh hour00 never0 opaque"},
			{2 * time.Minute, "day000 elsewh never0 opaque"},
			{22 * time.Hour, "day000 elsewh never0 opaque"},
		} {
			apitest.Settle(step.after)
			if got := strings.Join(left(api), " "); got != step.want {
				t.Errorf("after %s more: %s, want %s", step.after, got, step.want)
			}
		}
		// A token whose expiration is postponed is kept; a token whose expiration is brought forward is deleted.
		day, _ := apitest.Get[*corev1.Secret](api, "kube-system", bootstrapapi.BootstrapTokenSecretPrefix+"day000")
		apitest.Change(api, day, "", func(s *corev1.Secret) {
			s.Data["expiration"] = []byte(time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339))
		})
		apitest.Settle(24 * time.Hour)
		if _, ok := apitest.Get[*corev1.Secret](api, "kube-system", day.Name); !ok {
			t.Error("the token was deleted at its previous expiration")
		}
		apitest.Settle(25 * time.Hour)
		if _, ok := apitest.Get[*corev1.Secret](api, "kube-system", day.Name); ok {
			t.Error("the token remains after its expiration")
		}
	})
}

func TestClusterInfoIsSigned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		unsigned := bootstrap("plain0", 0)
		delete(unsigned.Data, "usage-bootstrap-signing")
		misnamed := bootstrap("other0", 0)
		misnamed.Data["token-id"] = []byte("plain0")
		api.Create(bootstrap("first0", 0), bootstrap("hour00", time.Hour), unsigned, misnamed)
		api.Run(NewSigner(api.Deps()))
		info := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: infoName},
			Data:       map[string]string{infoKey: "clusters: []", "note": "mine", infoSigns + "gone00": "old"}}
		api.Create(info)
		keys := func() string {
			synctest.Wait()
			cm, _ := apitest.Get[*corev1.ConfigMap](api, "kube-public", infoName)
			info = cm
			return strings.Join(slices.Sorted(maps.Keys(cm.Data)), " ")
		}
		if got := keys(); got != "jws-kubeconfig-first0 jws-kubeconfig-hour00 kubeconfig note" {
			t.Fatal(got)
		}
		verify := func() {
			t.Helper()
			want, err := token{"first0", "first00123456789"}.sign(info.Data[infoKey])
			if err != nil || info.Data[infoSigns+"first0"] != want {
				t.Errorf("%v, signature %q, want %q", err, info.Data[infoSigns+"first0"], want)
			}
		}
		verify()
		rev := api.Store.Revision()
		apitest.Settle(30 * time.Minute)
		if api.Store.Revision() != rev {
			t.Error("the idle controller wrote")
		}
		apitest.Settle(31 * time.Minute)
		if got := keys(); got != "jws-kubeconfig-first0 kubeconfig note" {
			t.Errorf("after a token expired: %s", got)
		}
		apitest.Change(api, info, "", func(cm *corev1.ConfigMap) { cm.Data[infoKey] = "clusters: [{}]" })
		keys()
		verify()
		apitest.Change(api, info, "", func(cm *corev1.ConfigMap) { delete(cm.Data, infoKey) })
		if got := keys(); got != "note" {
			t.Errorf("without a kubeconfig: %s", got)
		}
	})
}

// The values of upstream's own test (pkg/controller/bootstrap/jws_test.go).
func TestSignature(t *testing.T) {
	t.Parallel()
	got, err := token{"joshua", "my voice is my passcode"}.sign(
		"Hello from the other side. I must have called a thousand times.")
	if want := "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"; err != nil ||
		got != want {
		t.Errorf("%s, %v", got, err)
	}
}
