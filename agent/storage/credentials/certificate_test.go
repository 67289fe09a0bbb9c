package credentials_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"monopod/agent/storage/credentials"
	"monopod/agent/storage/volume"
	"monopod/apiserver/kit/client"
)

// api is an API with one service account, one node and the newest request.
type api struct {
	client.Client
	created int
	last    *certificatesv1.PodCertificateRequest
	fail    error
}

func (a *api) Get(_ context.Context, ref client.Ref) (client.Object, error) {
	switch {
	case a.fail != nil:
		return nil, a.fail
	case ref.Resource == client.ServiceAccounts:
		return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: "sa-uid"}},
			nil
	case ref.Resource == client.Nodes:
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ref.Name, UID: "node-uid"}}, nil
	case a.last == nil || a.last.Name != ref.Name:
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return a.last, nil
}

func (a *api) Create(_ context.Context, obj client.Object) (client.Object, error) {
	if a.fail != nil {
		return nil, a.fail
	}
	a.created++
	a.last = obj.(*certificatesv1.PodCertificateRequest).DeepCopy()
	a.last.Name = fmt.Sprint("req-", a.created)
	return a.last, nil
}

// end writes the result of the newest request. A certificate is due for a refresh after one hour and expires after two.
func (a *api) end(typ, chain string, now time.Time) {
	a.last = a.last.DeepCopy()
	refresh, expires := metav1.NewTime(now.Add(time.Hour)), metav1.NewTime(now.Add(2*time.Hour))
	a.last.Status = certificatesv1.PodCertificateRequestStatus{CertificateChain: chain, BeginRefreshAt: &refresh,
		NotAfter:   &expires,
		Conditions: []metav1.Condition{{Type: typ, Status: metav1.ConditionTrue, Reason: "r", Message: "m"}}}
}

// setup returns Certificates with an API. get requests the only certificate of a pod.
func setup(t *testing.T) (k *credentials.Certificates, a *api, clk *clocktesting.FakePassiveClock,
	get func() (string, error), events *[]string) {
	t.Helper()
	a, clk, events = &api{}, clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)), new([]string)
	k = credentials.NewCertificates(a, clk, "n",
		func(_ *corev1.Pod, reason, message string) { *events = append(*events, reason+": "+message) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{ServiceAccountName: "sa"}}
	return k, a, clk, func() (string, error) {
		b, err := k.Get(t.Context(), pod, volume.Source{Volume: "v"},
			&corev1.PodCertificateProjection{SignerName: "example.com/s", KeyType: "ED25519"})
		if err == nil && !strings.Contains(string(b.Key), "BEGIN PRIVATE KEY") {
			t.Errorf("the key is %q", b.Key)
		}
		return string(b.Chain), err
	}, events
}

func block(text string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
}

const issued = certificatesv1.PodCertificateRequestConditionTypeIssued

func TestIssuedAndRenewed(t *testing.T) {
	t.Parallel()
	k, a, clk, get, events := setup(t)
	for range 2 {
		if _, err := get(); !errors.Is(err, credentials.ErrPending) || a.created != 1 {
			t.Fatalf("error %v after %d requests", err, a.created)
		}
	}
	spec := a.last.Spec
	if spec.PodUID != "u" || spec.ServiceAccountUID != "sa-uid" || spec.NodeName != "n" || spec.NodeUID != "node-uid" ||
		a.last.OwnerReferences[0].UID != "u" {
		t.Errorf("the request is %+v", a.last)
	}
	if r, err := x509.ParseCertificateRequest(spec.StubPKCS10Request); err != nil || r.CheckSignature() != nil {
		t.Errorf("the PKCS #10 request is not valid: %v", err)
	}
	expectState(t, k, "not_yet_issued")
	start := clk.Now()
	a.end(issued, "text\n"+block("1"), start)
	if chain, err := get(); err != nil || chain != block("1") || k.Due("u") {
		t.Fatalf("issued chain %q, error %v, due %v", chain, err, k.Due("u"))
	}
	expectState(t, k, "fresh")
	clk.SetTime(start.Add(time.Hour + 5*time.Minute)) // with maximum jitter
	if !k.Due("u") {
		t.Fatal("the certificate is not due for a refresh")
	}
	if chain, err := get(); err != nil || chain != block("1") || a.created != 2 {
		t.Fatalf("chain during the refresh %q, error %v, %d requests", chain, err, a.created)
	}
	if k.Due("u") {
		t.Error("the certificate is due again while the request is pending")
	}
	// The signer does not answer: the certificate becomes overdue and expires, and the request is garbage-collected.
	for _, after := range []time.Duration{time.Hour + 16*time.Minute, 2 * time.Hour} {
		clk.SetTime(start.Add(after))
		if chain, err := get(); err != nil || chain != block("1") {
			t.Errorf("chain while the request is pending: %q, error %v", chain, err)
		}
	}
	expectState(t, k, "expired")
	if want := []string{"CertificateOverdueForRefresh: PodCertificate refresh overdue",
		"CertificateExpired: PodCertificate expired"}; !slices.Equal(*events, want) {
		t.Errorf("events %q, want %q", *events, want)
	}
	a.last = nil
	if _, err := get(); err != nil || a.created != 3 {
		t.Fatalf("after the removal of the request: error %v, %d requests", err, a.created)
	}
	a.end(issued, block("3"), clk.Now())
	if chain, err := get(); err != nil || chain != block("3") {
		t.Errorf("renewed chain %q, error %v", chain, err)
	}
	k.Forget("u")
	if _, err := get(); !errors.Is(err, credentials.ErrPending) || a.created != 4 {
		t.Errorf("after Forget: error %v, %d requests", err, a.created)
	}
}

// A denied or failed request is final: there is no further request.
func TestRefused(t *testing.T) {
	t.Parallel()
	for typ, want := range map[string]string{"Denied": "denied", "Failed": "failed"} {
		k, a, clk, get, events := setup(t)
		if _, err := get(); !errors.Is(err, credentials.ErrPending) {
			t.Fatal(err)
		}
		a.end(typ, "", clk.Now())
		for range 2 {
			if _, err := get(); err == nil || err.Error() != `PodCertificateRequest was permanently `+want+
				`: reason="r" message="m"` {
				t.Error("unexpected error: ", err)
			}
			clk.SetTime(clk.Now().Add(24 * time.Hour))
		}
		expectState(t, k, want)
		if a.created != 1 || k.Due("u") || len(*events) != 1 ||
			!strings.HasPrefix((*events)[0], typ+": PodCertificateRequest ns/req-1 was "+want) {
			t.Errorf("%d requests, want 1; events %q", a.created, *events)
		}
	}
}

// Without the API, Get returns an existing certificate, or the error of the API.
func TestWithoutAPI(t *testing.T) {
	t.Parallel()
	_, a, clk, get, _ := setup(t)
	a.fail = errors.New("away")
	if _, err := get(); !errors.Is(err, a.fail) {
		t.Error(err)
	}
	a.fail = nil
	if _, err := get(); !errors.Is(err, credentials.ErrPending) {
		t.Error(err)
	}
	a.end(issued, block("1"), clk.Now())
	if _, err := get(); err != nil {
		t.Error(err)
	}
	a.fail = errors.New("away")
	clk.SetTime(clk.Now().Add(90 * time.Minute))
	if chain, err := get(); err != nil || chain != block("1") {
		t.Errorf("chain without the API: %q, error %v", chain, err)
	}
}

// expectState checks the state of the only certificate in the metrics.
func expectState(t *testing.T, k *credentials.Certificates, want string) {
	t.Helper()
	all := prometheus.NewPedanticRegistry()
	if err := all.Register(k.Metrics()); err != nil {
		t.Fatal(err)
	}
	families, err := all.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "kubelet_podcertificate_states" ||
		len(families[0].GetMetric()) != 1 {
		t.Fatalf("metrics %v, error %v", families, err)
	}
	one := families[0].GetMetric()[0]
	if l := one.GetLabel(); l[0].GetValue() != "example.com/s" || l[1].GetValue() != want ||
		one.GetGauge().GetValue() != 1 {
		t.Errorf("state %v, want %s", one, want)
	}
}

func TestKeyTypes(t *testing.T) {
	t.Parallel()
	_, a, _, _, _ := setup(t)
	clk := clocktesting.NewFakePassiveClock(time.Now())
	k := credentials.NewCertificates(a, clk, "n", nil)
	for i, typ := range []string{"RSA3072", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		_, err := k.Get(t.Context(), &corev1.Pod{}, volume.Source{Index: i}, &corev1.PodCertificateProjection{KeyType: typ})
		if !errors.Is(err, credentials.ErrPending) {
			t.Errorf("%s: %v", typ, err)
		}
		if r, err := x509.ParseCertificateRequest(a.last.Spec.StubPKCS10Request); err != nil || r.CheckSignature() != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := k.Get(t.Context(), &corev1.Pod{}, volume.Source{Index: 9},
		&corev1.PodCertificateProjection{KeyType: "DSA"}); err == nil ||
		!strings.Contains(err.Error(), `unknown key type "DSA"`) {
		t.Error(err)
	}
}
