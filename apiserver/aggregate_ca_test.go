package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certificateFor returns a self-signed certificate for a name, and its PEM as JSON text.
func certificateFor(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(text)
}

// The aggregator accepts an aggregated server only if its certificate is valid for the Service's name and signed by the
// APIService's caBundle.
func TestAggregationVerifiesTheServer(t *testing.T) {
	t.Parallel()
	cert, bundle := certificateFor(t, "other.default.svc")
	_, stranger := certificateFor(t, "other.default.svc")
	o := &other{Server: httptest.NewUnstartedServer(newOther(t).Config.Handler)}
	o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	o.StartTLS()
	t.Cleanup(func() {
		o.CloseClientConnections()
		o.Close()
	})
	a := aggregated(t, o)
	for _, service := range []string{"other", "alias"} { // the certificate contains only the first
		if _, err := a.reg.Create(t.Context(),
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service},
				Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.reg.Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service,
				Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.2.3"}}},
			Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(443))}}}); err != nil {
			t.Fatal(err)
		}
	}
	const flunders = "/apis/wardle.example.com/v1/namespaces/default/flunders"
	for _, c := range []struct{ service, bundle, says string }{
		{"other", stranger, "certificate signed by unknown authority"},
		{"alias", bundle, "not alias.default.svc"},
		{"other", bundle, `"reason":"Passed"`},
	} {
		code, made := a.read("POST", "/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.wardle.example.com"},
			"spec":{"group":"wardle.example.com","version":"v1","groupPriorityMinimum":19000,"versionPriority":10,"caBundle":%s,"service":{"namespace":"default","name":%q}}}`, c.bundle, c.service))
		if code != http.StatusCreated {
			t.Fatal(code, made)
		}
		a.await(services+"v1.wardle.example.com", c.says)
		if c.says == `"reason":"Passed"` {
			a.await(flunders, `"kind":"Flunder"`) // the proxy follows the condition
		} else if code, out := a.read("GET", flunders, ""); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %v", c.says, code, out)
		}
		a.read("DELETE", services+"v1.wardle.example.com", "")
		a.await(flunders, `"code":404`)
	}
}
