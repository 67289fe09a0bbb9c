package certificates_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/kit/client"
)

type podRequest = certificatesv1.PodCertificateRequest

func stub(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// podAsks returns a valid request for the key.
func podAsks(t *testing.T, key crypto.Signer) *podRequest {
	return &podRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/signer", PodName: "p", PodUID: "pu", ServiceAccountName: "sa", ServiceAccountUID: "su",
			NodeName: "n", NodeUID: "nu",
			StubPKCS10Request: stub(t, key)}}
}

func ecKey(t *testing.T, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestPodRequests(t *testing.T) {
	t.Parallel()
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	api, key := open(t, ""), ecKey(t, elliptic.P256())
	good := stub(t, key)
	for name, c := range map[string]struct {
		change func(*certificatesv1.PodCertificateRequestSpec)
		want   string // part of the error; empty: valid
	}{
		"valid":   {func(*certificatesv1.PodCertificateRequestSpec) {}, ""},
		"ed25519": {func(s *certificatesv1.PodCertificateRequestSpec) { s.StubPKCS10Request = stub(t, edwards) }, ""},
		"no signer": {func(s *certificatesv1.PodCertificateRequestSpec) { s.SignerName = "" },
			"spec.signerName: Required value"},
		"no pod": {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodName = "" }, "spec.podName: Invalid value"},
		"no UID": {func(s *certificatesv1.PodCertificateRequestSpec) { s.PodUID = "" },
			`spec.podUID: Invalid value: "": must not be empty`},
		"a long UID": {func(s *certificatesv1.PodCertificateRequestSpec) { s.NodeUID = "123456789" + longUID },
			"spec.nodeUID: Too long"},
		"a bad account": {func(s *certificatesv1.PodCertificateRequestSpec) { s.ServiceAccountName = "A" },
			"spec.serviceAccountName: Invalid value"},
		"half an hour": {func(s *certificatesv1.PodCertificateRequestSpec) { s.MaxExpirationSeconds = new(int32(1800)) },
			"must be in the range [3600, 7862400]"},
		"a year": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.MaxExpirationSeconds = new(
				int32(365 * 86400))
		}, "must be in the range [3600, 7862400]"},
		"two days for a signer of Kubernetes": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.SignerName, s.MaxExpirationSeconds = "kubernetes.io/kube-apiserver-client-pod", new(int32(2*86400))
		}, "must be in the range [3600, 86400]"},
		"no CSR": {func(s *certificatesv1.PodCertificateRequestSpec) { s.StubPKCS10Request = nil },
			"spec.stubPKCS10Request: Invalid value: must be a DER-encoded"},
		"an invalid signature": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = tampered(
				good)
		}, "could not verify the signature"},
		"a long CSR": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = make([]byte,
				11<<10)
		}, "spec.stubPKCS10Request: Too long"},
		"RSA 2048": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = stub(t,
				short)
		}, "RSA keys must have modulus size 3072 or 4096, not 2048"},
		"P-224": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.StubPKCS10Request = stub(t, ecKey(t, elliptic.P224()))
		}, "elliptic public keys must use curve"},
		"an annotation without domain": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"a": "b"}
		}, "spec.unverifiedUserAnnotations: Invalid value"},
		"an annotation": {func(s *certificatesv1.PodCertificateRequestSpec) {
			s.UnverifiedUserAnnotations = map[string]string{"a.b/c": "d"}
		}, ""},
	} {
		r := podAsks(t, key)
		r.Name, r.GenerateName = "", "req-"
		c.change(&r.Spec)
		_, err := api.Create(as(t, "ann"), r)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

const longUID = "123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890"

// tampered returns a request with an invalid signature.
func tampered(der []byte) []byte {
	out := append([]byte(nil), der...)
	out[len(out)-1] ^= 1
	return out
}

// issue returns an update that writes an issued certificate for the key into the status, modified by change.
func issue(t *testing.T, key crypto.Signer, from time.Time, life time.Duration,
	change ...func(*certificatesv1.PodCertificateRequestStatus)) func(*podRequest) error {
	t.Helper()
	leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from.UTC().Truncate(time.Second),
		NotAfter: from.UTC().Truncate(time.Second).Add(life)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return func(r *podRequest) error {
		before, refresh, after := metav1.NewTime(leaf.NotBefore), metav1.NewTime(leaf.NotBefore.Add(life/2)),
			metav1.NewTime(leaf.NotAfter)
		r.Status = certificatesv1.PodCertificateRequestStatus{
			Conditions:       []metav1.Condition{{Type: "Issued", Status: metav1.ConditionTrue, Reason: "Issued"}},
			CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
			NotBefore:        &before, BeginRefreshAt: &refresh, NotAfter: &after,
		}
		for _, f := range change {
			f(&r.Status)
		}
		return nil
	}
}

// ended returns a change that writes another final condition.
func ended(types ...string) func(*podRequest) error {
	return func(r *podRequest) error {
		for _, typ := range types {
			r.Status.Conditions = append(r.Status.Conditions, metav1.Condition{Type: typ, Status: metav1.ConditionTrue,
				Reason: "R"})
		}
		return nil
	}
}

// A certificate needs the verb sign on the signer and the key of the request, and is issued once.
func TestPodCertificates(t *testing.T) {
	t.Parallel()
	key, other, now := ecKey(t, elliptic.P256()), ecKey(t, elliptic.P256()), time.Now()
	type status = certificatesv1.PodCertificateRequestStatus
	for name, c := range map[string]struct {
		user   string
		change func(*podRequest) error
		want   string
	}{
		"issued": {"sign", issue(t, key, now, time.Hour), ""},
		"without the verb sign": {"ann", issue(t, key, now, time.Hour),
			`spec.signerName: Forbidden: User "ann" is not permitted to "sign" for signer "example.com/signer"`},
		"for another key": {"sign", issue(t, other, now, time.Hour),
			"leaf certificate was not issued to the requested public key"},
		"too long": {"sign", issue(t, key, now, 25*time.Hour),
			"leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"},
		"too short": {"sign", issue(t, key, now, 59*time.Minute), "leaf certificate lifetime must be >= 1 hour"},
		"later": {"sign", issue(t, key, now.Add(10*time.Minute), time.Hour),
			"must be set to within 5 minutes of kube-apiserver's current time"},
		"without times": {"sign", issue(t, key, now, time.Hour, func(s *status) {
			s.NotAfter,
				s.BeginRefreshAt = nil, nil
		}), "status.beginRefreshAt: Required value"},
		"another end than the certificate's": {"sign", issue(t, key, now, time.Hour,
			func(s *status) { s.NotAfter = s.NotBefore }),
			"must be set to the NotAfter time encoded in the leaf certificate"},
		"refreshed at once": {"sign", issue(t, key, now, time.Hour,
			func(s *status) { s.BeginRefreshAt = s.NotBefore }), "must be at least 10 minutes after status.notBefore"},
		"refreshed at the end": {"sign", issue(t, key, now, time.Hour, func(s *status) { s.BeginRefreshAt = s.NotAfter }),
			"must be at least 10 minutes before status.notAfter"},
		"nothing": {"sign", issue(t, key, now, time.Hour, func(s *status) { s.CertificateChain = "" }),
			"issued certificate chain must contain at least one certificate"},
		"a key": {"sign", issue(t, key, now, time.Hour,
			func(s *status) { s.CertificateChain += "-----BEGIN X-----\n-----END X-----\n" }),
			"must consist entirely of CERTIFICATE PEM blocks"},
		"without a condition": {"sign", issue(t, key, now, time.Hour, func(s *status) { s.Conditions = nil }),
			"non-condition status fields must be empty"},
		"denied":            {"ann", ended("Denied"), ""},
		"denied and failed": {"ann", ended("Denied", "Failed"), "There may be at most one condition"},
		"denied with a chain": {"sign", issue(t, key, now, time.Hour,
			func(s *status) { s.Conditions[0].Type = "Denied" }), "non-condition status fields must be empty"},
		"approved": {"ann", ended("Approved"), "status.conditions[0].type: Unsupported value"},
	} {
		api := open(t, "example.com/signer")
		obj, err := api.Create(as(t, "ann"), podAsks(t, key))
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.Update(as(t, c.user), api, obj.(*podRequest), "status", c.change)
		if (err == nil) != (c.want == "") || err != nil && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(),
			c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil {
			continue
		}
		if _, err := client.Update(as(t, "sign"), api, obj.(*podRequest), "status",
			func(r *podRequest) error { r.Status.Conditions = nil; return nil }); err == nil || !strings.Contains(err.Error(),
			"immutable after PodCertificateRequest is issued, denied, or failed") {
			t.Errorf("%s: the outcome was removed: %v", name, err)
		}
		if _, err := client.Update(as(t, "ann"), api, obj.(*podRequest), "",
			func(r *podRequest) error { r.Spec.PodName = "q"; return nil }); err == nil || !strings.Contains(err.Error(),
			"spec: Invalid value") || !strings.Contains(err.Error(), "field is immutable") {
			t.Errorf("%s: the spec was changed: %v", name, err)
		}
	}
}
