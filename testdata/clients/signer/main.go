// Signer issues certificates of pods for one signer name, as external signers do. It denies requests with the user
// annotation example.com/deny. `signer NAME` runs until it is killed; `signer -verify FILE` checks a credential bundle.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-verify" {
		pair, err := tls.LoadX509KeyPair(os.Args[2], os.Args[2])
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("subject", pair.Leaf.Subject.CommonName)
		return
	}
	if err := sign(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func sign(ctx context.Context, name string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true}
	watch, err := client.CertificatesV1().PodCertificateRequests("").Watch(ctx,
		metav1.ListOptions{FieldSelector: "spec.signerName=" + name})
	if err != nil {
		return err
	}
	for event := range watch.ResultChan() {
		r, ok := event.Object.(*certificatesv1.PodCertificateRequest)
		if !ok || len(r.Status.Conditions) > 0 {
			continue
		}
		if err := answer(r, authority, key); err != nil {
			return err
		}
		if _, err := client.CertificatesV1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, r,
			metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// answer sets the status of a request: denied, or issued.
func answer(r *certificatesv1.PodCertificateRequest, authority *x509.Certificate, key *ecdsa.PrivateKey) error {
	if why := r.Spec.UnverifiedUserAnnotations["example.com/deny"]; why != "" {
		r.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied,
			Status: metav1.ConditionTrue, Reason: "Asked", Message: why}}
		return nil
	}
	csr, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	subject := fmt.Sprintf("%s/%s/%s", r.Namespace, r.Spec.ServiceAccountName, r.Spec.PodName)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: subject}, NotBefore: now,
		NotAfter: now.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, csr.PublicKey, key)
	if err != nil {
		return err
	}
	before, refresh, after := metav1.NewTime(leaf.NotBefore), metav1.NewTime(now.Add(30*time.Minute)),
		metav1.NewTime(leaf.NotAfter)
	r.Status = certificatesv1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeIssued,
			Status: metav1.ConditionTrue, Reason: "Issued"}},
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        &before, BeginRefreshAt: &refresh, NotAfter: &after,
	}
	return nil
}
