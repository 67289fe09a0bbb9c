package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/endpoint"
	"monopod/apiserver/registry/webhook"
)

// named is a cluster with one Service, which stands for a DNS name.
type named struct{ endpoint.Reader }

func (named) Get(context.Context, client.Ref) (client.Object, error) {
	return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, nil
}

// A webhook may be anywhere, also on this machine, so a call must contain nothing with which its receiver could act as this server
// or as the user of the request.
func TestCallsCarryNoCredentials(t *testing.T) {
	t.Parallel()
	var headers []string
	var certificates int
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers, certificates = slices.Sorted(maps.Keys(r.Header)), len(r.TLS.PeerCertificates)
		_, _ = w.Write([]byte("{}"))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	var dialed string
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed = address
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	for what, to := range map[string]webhook.Target{
		"url":          webhook.TargetOf(new(server.URL+"/hook"), nil, ca),
		"ExternalName": webhook.TargetOf(nil, &admissionv1.ServiceReference{Namespace: "example", Name: "com"}, ca),
	} {
		c := webhook.New(to, webhook.Network{API: named{}, Dial: dial})
		var answer runtime.Unknown
		err := c.Post(t.Context(), map[string]string{}, &answer)
		c.Close()
		if what == "ExternalName" { // the certificate must be the Service's, whatever the name leads to
			if err == nil || !strings.Contains(err.Error(), "com.example.svc") || dialed != "localhost:443" {
				t.Errorf("%s: dialed %s: %v", what, dialed, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if want := []string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}; !slices.Equal(headers, want) || certificates != 0 {
			t.Errorf("%s: %v, %d certificates", what, headers, certificates)
		}
	}
}
