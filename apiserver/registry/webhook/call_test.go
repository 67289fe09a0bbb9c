package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/endpoint"
	"monopod/apiserver/registry/webhook"
)

// named is a cluster with one Service of type ExternalName.
type named struct{ endpoint.Reader }

func (named) Get(context.Context, client.Ref) (client.Object, error) {
	return &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, nil
}

// A call contains no credentials of this server or of the user, because a webhook may run anywhere.
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
		if what == "ExternalName" { // the certificate must be the Service's, whatever the name resolves to
			if err == nil || !strings.Contains(err.Error(), "com.example.svc") || dialed != "localhost:443" {
				t.Errorf("%s: dialed %s: %v", what, dialed, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if want := []string{"Accept", "Accept-Encoding", "Content-Length", "Content-Type", "User-Agent"}; !slices.Equal(
			headers, want) || certificates != 0 {
			t.Errorf("%s: %v, %d certificates", what, headers, certificates)
		}
	}
}

// Responses are limited before they are decoded: an endless response is not read to its end, and a short text that needs
// a lot of memory is rejected.
func TestAnswersAreBounded(t *testing.T) {
	var answer func(w io.Writer) (sent int, err error)
	sent := make(chan int, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, _ := answer(w)
		sent <- n
	}))
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c := webhook.New(webhook.TargetOf(new(server.URL), nil, ca), webhook.Network{})
	t.Cleanup(c.Close)
	text := func(s string) func(io.Writer) (int, error) {
		return func(w io.Writer) (int, error) { return io.WriteString(w, s) }
	}
	objects := func(list string) string { return `{"response":{"uid":"u","convertedObjects":[` + list + `]}}` }
	for name, tt := range map[string]struct {
		answer func(io.Writer) (int, error)
		want   string
	}{
		"of common size": {text(objects(strings.Repeat("{},", 499) + "{}")), ""},
		"endless": {func(w io.Writer) (n int, err error) {
			for err == nil && n < 64<<20 {
				var m int
				m, err = io.WriteString(w, strings.Repeat(" ", 64<<10))
				n += m
			}
			return n, err
		}, "the response is larger than 8388608 bytes"},
		"deep": {text(objects(strings.Repeat(`{"a":`, 300) + "1" + strings.Repeat("}", 300))),
			"must not be nested more than 256 levels deep"},
		"deep without fields": {text(strings.Repeat("[", 8<<20)), "must not be nested more than 256 levels deep"},
		"many objects":        {text(objects(strings.Repeat("0,", 4<<20-100) + "0")), "response.convertedObjects: Too many"},
	} {
		var before, after goruntime.MemStats
		goruntime.ReadMemStats(&before)
		answer = tt.answer
		err := c.Post(t.Context(), map[string]string{}, &apiextensionsv1.ConversionReview{})
		goruntime.ReadMemStats(&after)
		if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
		if n := <-sent; n > 32<<20 {
			t.Errorf("%s: the webhook could send %d bytes", name, n)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 128 {
			t.Errorf("%s: took %d MiB", name, took)
		}
	}
}
