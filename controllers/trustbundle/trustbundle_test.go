package trustbundle

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority returns a new CA certificate in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestPublishesAndRepairs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		old := New(api.Deps(), Config{CA: authority(t)}).wanted()
		foreign := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "mine"},
			Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(authority(t))}}
		api.Create(old)
		api.Create(foreign)
		c := New(api.Deps(), Config{CA: authority(t)})
		api.Run(c)
		wanted := c.wanted()
		published := func(when string) {
			t.Helper()
			synctest.Wait()
			all, err := client.List[*certificatesv1.ClusterTrustBundle](t.Context(), api.Deps().Client, bundles())
			if err != nil || len(all) != 1 || all[0].Name != wanted.Name || all[0].Spec != wanted.Spec {
				t.Errorf("%s: %+v, %v", when, all, err)
			}
		}
		published("at the start, instead of the bundle of an earlier CA")
		apitest.Change(api, wanted, "",
			func(b *certificatesv1.ClusterTrustBundle) { b.Spec.TrustBundle = old.Spec.TrustBundle })
		published("after it was changed")
		api.Delete(wanted, "")
		published("after it was deleted")
		if _, ok := apitest.Get[*certificatesv1.ClusterTrustBundle](api, "", "mine"); !ok {
			t.Error("the bundle of another signer was deleted")
		}
	})
}
