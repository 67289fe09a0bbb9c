package credentials

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod/apiserver/kit/client"
)

// create generates a key and requests a certificate for it that names the pod, its service account and the node.
func (k *Certificates) create(ctx context.Context, pod *corev1.Pod, p *corev1.PodCertificateProjection) (
	key []byte, _ *certificatesv1.PodCertificateRequest, err error) {
	account, err := client.Get[*corev1.ServiceAccount](ctx, k.client, pod.Namespace, pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, nil, err
	}
	node, err := client.Get[*corev1.Node](ctx, k.client, "", k.node)
	if err != nil {
		return nil, nil, err
	}
	key, stub, err := generate(p.KeyType)
	if err != nil {
		return nil, nil, err
	}
	created, err := k.client.Create(ctx, &certificatesv1.PodCertificateRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "PodCertificateRequest"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(k.node), NodeUID: node.UID,
			MaxExpirationSeconds: p.MaxExpirationSeconds, StubPKCS10Request: stub,
			UnverifiedUserAnnotations: p.UserAnnotations,
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return key, created.(*certificatesv1.PodCertificateRequest), nil
}

// generate returns a new private key in PEM, and an empty PKCS#10 request in DER that is signed with it.
func generate(keyType string) (key, stub []byte, err error) {
	var private crypto.Signer
	switch keyType {
	case "RSA3072":
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		private, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		err = fmt.Errorf("unknown key type %q", keyType)
	}
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	stub, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub, err
}

// onlyBlocks returns the PEM blocks of a chain without headers, and without the text between them.
func onlyBlocks(chain string) (out []byte) {
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
}
