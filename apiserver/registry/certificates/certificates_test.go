package certificates_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
)

type request = certificatesv1.CertificateSigningRequest

// signers allows a user only the verb that equals the user name, on one signer.
type signers struct{ name string }

func (s signers) Authorize(_ context.Context, a auth.Attributes) (bool, string, error) {
	return a.Resource == "signers" && a.Group == "certificates.k8s.io" && a.Verb == a.User.Name && a.Name == s.name, "",
		nil
}

func (signers) Rules(context.Context, auth.User, string) ([]rbacv1.PolicyRule, error) {
	return nil, nil
}

func open(t *testing.T, signer string) *registry.Registry {
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources)}, nil, nil, 0)
	t.Cleanup(func() { s.Close() })
	r := registry.New(s, resources, registry.Config{Roles: signers{signer}})
	if err := r.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func as(t *testing.T, name string, groups ...string) context.Context {
	return auth.WithUser(t.Context(),
		auth.User{Name: name, UID: "u", Groups: groups, Extra: map[string][]string{"a": {"b"}}})
}

// asked returns a valid request of jane for the organization.
func asked(t *testing.T, organization string, change ...func(*request)) *request {
	t.Helper()
	return askedAs(t, "jane", organization, change...)
}

// askedAs returns a valid request for the name and the organization.
func askedAs(t *testing.T, name, organization string, change ...func(*request)) *request {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{organization}}}, key)
	if err != nil {
		t.Fatal(err)
	}
	r := &request{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: certificatesv1.CertificateSigningRequestSpec{
		Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: "example.com/signer",
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}}}
	for _, f := range change {
		f(r)
	}
	return r
}

func TestCreation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*request)
		want   string // part of the error; empty: valid
	}{
		"valid":      {func(*request) {}, ""},
		"no request": {func(r *request) { r.Spec.Request = nil }, "PEM block type must be CERTIFICATE REQUEST"},
		"another block": {func(r *request) { r.Spec.Request = []byte("-----BEGIN X-----\n-----END X-----\n") },
			"PEM block type must be CERTIFICATE REQUEST"},
		"no usages": {func(r *request) { r.Spec.Usages = nil }, "spec.usages: Required value"},
		"an unknown usage": {func(r *request) { r.Spec.Usages = []certificatesv1.KeyUsage{"cooking"} },
			`spec.usages[0]: Unsupported value: "cooking"`},
		"a usage twice": {func(r *request) { r.Spec.Usages = append(r.Spec.Usages, r.Spec.Usages...) },
			"spec.usages[1]: Duplicate value"},
		"no signer": {func(r *request) { r.Spec.SignerName = "" }, "spec.signerName: Required value"},
		"a signer without path": {func(r *request) { r.Spec.SignerName = "example.com" },
			"must be a fully qualified domain and path of the form 'example.com/signer-name'"},
		"a signer's domain": {func(r *request) { r.Spec.SignerName = "example/signer" },
			"should be a domain with at least two segments separated by dots"},
		"the legacy signer": {func(r *request) { r.Spec.SignerName = "kubernetes.io/legacy-unknown" },
			"the legacy signerName is not allowed via this API version"},
		"short": {func(r *request) { r.Spec.ExpirationSeconds = new(int32(599)) },
			"may not specify a duration less than 600 seconds (10 minutes)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := open(t, "").Create(as(t, "ann", "devs"), asked(t, "devs", c.change))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// The server sets the requester: clients cannot.
func TestRequester(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	obj, err := r.Create(as(t, "ann", "devs"), asked(t, "devs", func(r *request) {
		r.Spec.Username = "root"
		r.Spec.Groups = []string{"system:masters"}
	}))
	if err != nil {
		t.Fatal(err)
	}
	if s := obj.(*request).Spec; s.Username != "ann" || s.UID != "u" || !slices.Equal(s.Groups, []string{"devs"}) ||
		len(s.Extra["a"]) != 1 {
		t.Errorf("%+v", s)
	}
	next, err := client.Update(as(t, "ann"), r, obj.(*request), "", func(r *request) error {
		r.Spec.Username, r.Status.Certificate, r.Labels = "root", []byte("x"), map[string]string{"a": "b"}
		return nil
	})
	if err != nil || next.Spec.Username != "ann" || next.Status.Certificate != nil || next.Labels["a"] != "b" {
		t.Errorf("%v, %+v", err, next)
	}
	// A certificate for the group system:masters is forbidden.
	masters := asked(t, auth.Masters, func(r *request) {
		r.Name = "m"
		r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	})
	if _, err := r.Create(as(t, "ann"), masters); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
		"use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed") {
		t.Error(err)
	}
}

// Nobody gets a certificate that API servers or kubelets trust as one of the servers.
func TestCertificatesOfServersAreForbidden(t *testing.T) {
	t.Parallel()
	r := open(t, "")
	for _, name := range []string{auth.FrontProxy.Name, auth.KubeletClient.Name} {
		server := askedAs(t, name, "devs", func(r *request) {
			r.Name = name
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		})
		if _, err := r.Create(as(t, "ann"), server); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(),
			"signer with the name "+name+" is not allowed") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func add(t certificatesv1.RequestConditionType) func(*request) error {
	return func(r *request) error {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: t,
			Status: corev1.ConditionTrue})
		return nil
	}
}

// Approving and signing need the verbs approve and sign on the signer; a decision is final.
func TestDecisions(t *testing.T) {
	t.Parallel()
	for _, signer := range []string{"example.com/signer", "example.com/*"} {
		r := open(t, signer)
		obj, err := r.Create(as(t, "ann"), asked(t, "devs"))
		if err != nil {
			t.Fatal(err)
		}
		csr := obj.(*request)
		change := func(user, part string, f func(*request) error) error {
			_, err := client.Update(as(t, user), r, csr, part, f)
			return err
		}
		certificate := func(text string) func(*request) error {
			return func(r *request) error { r.Status.Certificate = []byte(text); return nil }
		}
		for _, step := range []struct {
			what, user, part string
			change           func(*request) error
			want             string
		}{
			{"no approval without the verb", "sign", "approval", add(certificatesv1.CertificateApproved),
				`user not permitted to approve requests with signerName "example.com/signer"`},
			{"a status does not approve", "sign", "status", add(certificatesv1.CertificateApproved),
				`updates may not add a condition of type "Approved"`},
			{"both at once", "approve", "approval", func(r *request) error {
				_ = add(certificatesv1.CertificateDenied)(r)
				return add(certificatesv1.CertificateApproved)(r)
			}, "mutually exclusive"},
			{"approved", "approve", "approval", add(certificatesv1.CertificateApproved), ""},
			{"no longer denied", "approve", "approval",
				func(r *request) error { r.Status.Conditions = nil; return add(certificatesv1.CertificateDenied)(r) },
				`updates may not remove a condition of type "Approved"`},
			{"nor does a status withdraw it", "sign", "status", func(r *request) error { r.Status.Conditions = nil; return nil },
				`updates may not remove a condition of type "Approved"`},
			{"no signature without the verb", "approve", "status", add(certificatesv1.CertificateFailed),
				`user not permitted to sign requests with signerName "example.com/signer"`},
			{"not a certificate", "sign", "status", certificate("x"), "must contain at least one CERTIFICATE PEM block"},
			{"another block", "sign", "status", certificate(string(csr.Spec.Request)),
				`only CERTIFICATE PEM blocks are allowed, found "CERTIFICATE REQUEST"`},
			{"failed", "sign", "status", add(certificatesv1.CertificateFailed), ""},
		} {
			err := change(step.user, step.part, step.change)
			if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) {
				t.Errorf("%s: got %v, want %q", step.what, err, step.want)
			}
		}
		now, err := client.Get[*request](t.Context(), r, "", "r")
		if err != nil || len(now.Status.Conditions) != 2 ||
			now.Status.Conditions[0].Type != certificatesv1.CertificateApproved {
			t.Fatalf("%v, %+v", err, now.Status.Conditions)
		}
		for _, c := range now.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.LastTransitionTime.IsZero() || c.LastUpdateTime.IsZero() {
				t.Errorf("%+v", c)
			}
		}
	}
}
