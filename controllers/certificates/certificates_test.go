package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/controllers/internal/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asked returns a CertificateSigningRequest of the node n; change may modify it.
func asked(t *testing.T, name, signer string, x x509.CertificateRequest, change ...func(*request)) *request {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x, key)
	if err != nil {
		t.Fatal(err)
	}
	r := &request{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: signer,
			Username: "system:node:n",
			Usages:   []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature},
		},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func node(name string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}}
}

func with(usages ...certificatesv1.KeyUsage) func(*request) {
	return func(r *request) { r.Spec.Usages = usages }
}

// authority creates a certificate authority and returns its Sign.
func authority(t *testing.T) Sign {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}}
	return func(template x509.Certificate, public any) ([]byte, error) {
		template.SerialNumber = big.NewInt(2)
		der, err := x509.CreateCertificate(rand.Reader, &template, ca, public, key)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
	}
}

func decide(api *apitest.API, r *request, t certificatesv1.RequestConditionType) {
	apitest.Change(api, r, "approval", func(r *request) {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: t,
			Status: corev1.ConditionTrue})
	})
	synctest.Wait()
}

// state formats the conditions, and "issued" if the status has a certificate.
func state(api *apitest.API, name string) string {
	r, ok := apitest.Get[*request](api, "", name)
	if !ok {
		return "gone"
	}
	var out []string
	for _, c := range r.Status.Conditions {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s", c.Type, c.Reason)))
	}
	if len(r.Status.Certificate) > 0 {
		out = append(out, "issued")
	}
	return strings.Join(out, ", ")
}

func TestApproving(t *testing.T) {
	t.Parallel()
	const kubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
	for name, c := range map[string]struct {
		r       *request
		allowed []string
		want    string
	}{
		"its own": {asked(t, "r", kubelet, node("system:node:n")), []string{"selfnodeclient"},
			"Approved AutoApproved"},
		"its own, not permitted": {asked(t, "r", kubelet, node("system:node:n")), nil, ""},
		"another node's":         {asked(t, "r", kubelet, node("system:node:m")), []string{"selfnodeclient"}, ""},
		"any node's": {asked(t, "r", kubelet, node("system:node:m")), []string{"nodeclient"},
			"Approved AutoApproved"},
		"not a node's": {asked(t, "r", kubelet, node("n")), []string{"nodeclient", "selfnodeclient"}, ""},
		"another signer": {asked(t, "r", certificatesv1.KubeAPIServerClientSignerName, node("system:node:n")),
			[]string{"nodeclient", "selfnodeclient"}, ""},
		"for serving": {asked(t, "r", kubelet, node("system:node:n"), with(certificatesv1.UsageServerAuth,
			certificatesv1.UsageDigitalSignature)), []string{"nodeclient", "selfnodeclient"}, ""},
		"key encipherment, too": {asked(t, "r", kubelet, node("system:node:n"), with(certificatesv1.UsageKeyEncipherment,
			certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature)), []string{"selfnodeclient"},
			"Approved AutoApproved"},
		"without client auth": {asked(t, "r", kubelet, node("system:node:n"), with(certificatesv1.UsageDigitalSignature)),
			[]string{"selfnodeclient"}, ""},
		"with another subject": {asked(t, "r", kubelet,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes",
				"system:masters"}}}), []string{"nodeclient", "selfnodeclient"}, ""},
		"with a DNS name": {asked(t, "r", kubelet, x509.CertificateRequest{Subject: node("system:node:n").Subject,
			DNSNames: []string{"a"}}), []string{"nodeclient", "selfnodeclient"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Run(NewApproving(api.Deps(), func(_ context.Context, by *certificatesv1.CertificateSigningRequestSpec,
					subresource string) (bool, error) {
					return by.Username == "system:node:n" && slices.Contains(c.allowed, subresource), nil
				}))
				api.Create(c.r)
				synctest.Wait()
				if got := state(api, "r"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestSigning(t *testing.T) {
	t.Parallel()
	const failed = "Approved, Failed SignerValidationFailure"
	ip := x509.CertificateRequest{Subject: node("system:node:n").Subject, IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}}
	serving := with(certificatesv1.UsageServerAuth, certificatesv1.UsageDigitalSignature)
	jane := x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"devs"}}}
	for name, c := range map[string]struct {
		r    *request
		want string
	}{
		"client":                    {asked(t, "r", certificatesv1.KubeAPIServerClientSignerName, jane), "Approved, issued"},
		"client with another usage": {asked(t, "r", certificatesv1.KubeAPIServerClientSignerName, jane, serving), failed},
		"client without its usage": {asked(t, "r", certificatesv1.KubeAPIServerClientSignerName, jane,
			with(certificatesv1.UsageDigitalSignature)), failed},
		"node": {asked(t, "r", certificatesv1.KubeAPIServerClientKubeletSignerName,
			node("system:node:n")), "Approved, issued"},
		"node of another organization": {asked(t, "r", certificatesv1.KubeAPIServerClientKubeletSignerName, jane), failed},
		"node with an address":         {asked(t, "r", certificatesv1.KubeAPIServerClientKubeletSignerName, ip), failed},
		"serving": {asked(t, "r", certificatesv1.KubeletServingSignerName, ip, serving),
			"Approved, issued"},
		"serving without an address": {asked(t, "r", certificatesv1.KubeletServingSignerName, node("system:node:n"),
			serving), failed},
		"another signer": {asked(t, "r", "example.com/signer", jane), "Approved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := apitest.New(t)
				api.Run(NewSigning(api.Deps(), Authorities{Cluster: authority(t), Kubelet: authority(t)}, 0))
				api.Create(c.r)
				synctest.Wait()
				if got := state(api, "r"); got != "" {
					t.Errorf("%q before the approval", got)
				}
				decide(api, c.r, certificatesv1.CertificateApproved)
				if got := state(api, "r"); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// A certificate has the requested subject and names, and the requested validity up to the maximum.
func TestIssued(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewSigning(api.Deps(), Authorities{Cluster: authority(t)}, 24*time.Hour))
		for seconds, want := range map[int32]time.Duration{0: 24 * time.Hour, 3600: time.Hour, 48 * 3600: 24 * time.Hour} {
			name := fmt.Sprint("r", seconds)
			r := asked(t, name, certificatesv1.KubeAPIServerClientSignerName,
				x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane", Organization: []string{"devs"}},
					DNSNames: []string{"a.b"}})
			if seconds > 0 {
				r.Spec.ExpirationSeconds = &seconds
			}
			api.Create(r)
			decide(api, r, certificatesv1.CertificateApproved)
			got, _ := apitest.Get[*request](api, "", name)
			block, _ := pem.Decode(got.Status.Certificate)
			x, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(x.NotAfter).Round(time.Minute); left != want {
				t.Errorf("%d s: valid for %s, want %s", seconds, left, want)
			}
			if x.Subject.CommonName != "jane" || !slices.Equal(x.DNSNames, []string{"a.b"}) || !slices.Equal(x.ExtKeyUsage,
				[]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) || x.IsCA {
				t.Errorf("issued: %+v", x)
			}
		}
		// The controller issues no certificate for a denied request.
		r := asked(t, "denied", certificatesv1.KubeAPIServerClientSignerName,
			x509.CertificateRequest{Subject: pkix.Name{CommonName: "jane"}})
		api.Create(r)
		decide(api, r, certificatesv1.CertificateDenied)
		if got := state(api, "denied"); got != "Denied" {
			t.Error(got)
		}
	})
}

// A PodCertificateRequest is deleted after 15 minutes, even if it failed.
func TestPodCleaning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewPodCleaning(api.Deps()))
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{0, 10 * time.Minute} {
			time.Sleep(after)
			api.Create(&certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: fmt.Sprint("r", int(after.Minutes()))}, Spec: certificatesv1.PodCertificateRequestSpec{
				SignerName: "example.com/s", PodName: "p", PodUID: "u", ServiceAccountName: "sa", ServiceAccountUID: "u",
				NodeName: "n", NodeUID: "u", StubPKCS10Request: stub}})
		}
		for _, step := range []struct {
			after time.Duration
			want  int
		}{{4 * time.Minute, 2}, {2 * time.Minute, 1}, {8 * time.Minute, 1}, {2 * time.Minute, 0}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := len(apitest.List[*certificatesv1.PodCertificateRequest](api, "default")); got != step.want {
				t.Errorf("after %v: %d requests, want %d", step.after, got, step.want)
			}
		}
	})
}

func TestCleaning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := apitest.New(t)
		api.Run(NewCleaning(api.Deps()))
		for _, name := range []string{"pending", "approved", "denied", "failed", "late"} {
			api.Create(asked(t, name, "example.com/signer", x509.CertificateRequest{}))
		}
		// expires and issued have a certificate, valid for 30 minutes and 30 hours
		for name, life := range map[string]time.Duration{"issued": time.Hour * 30, "expires": 30 * time.Minute} {
			api.Create(asked(t, name, "example.com/signer", x509.CertificateRequest{}))
			r, _ := apitest.Get[*request](api, "", name)
			decide(api, r, certificatesv1.CertificateApproved)
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			issued, err := authority(t)(x509.Certificate{NotAfter: time.Now().Add(life)}, &key.PublicKey)
			if err != nil {
				t.Fatal(err)
			}
			apitest.Change(api, r, "status", func(r *request) { r.Status.Certificate = issued })
		}
		get := func(name string) *request { r, _ := apitest.Get[*request](api, "", name); return r }
		decide(api, get("approved"), certificatesv1.CertificateApproved)
		decide(api, get("denied"), certificatesv1.CertificateDenied)
		apitest.Change(api, get("failed"), "status", func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions,
				certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed,
					Status: corev1.ConditionTrue})
		})
		there := func() string {
			var out []string
			for _, r := range apitest.List[*request](api, "") {
				out = append(out, r.Name)
			}
			return strings.Join(out, " ")
		}
		for _, step := range []struct {
			after time.Duration
			want  string
		}{
			{29 * time.Minute, "approved denied expires failed issued late pending"},
			{30 * time.Minute, "approved denied failed issued late pending"},
			{2 * time.Minute, "late pending"},
			{22*time.Hour + 30*time.Minute, "late pending"},
		} {
			if apitest.Settle(step.after); there() != step.want {
				t.Errorf("after %s more: %s, want %s", step.after, there(), step.want)
			}
		}
		decide(api, get("late"), certificatesv1.CertificateApproved)
		if apitest.Settle(40 * time.Minute); there() != "late" {
			t.Errorf("after the approval of late: %s", there())
		}
		if apitest.Settle(time.Hour); there() != "" {
			t.Errorf("at the end: %s", there())
		}
	})
}
