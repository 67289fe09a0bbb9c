package program

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// accountDir is the folder of a pod's service account token and the CA certificate of the API server.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount/"

// api calls the API server as programs in pods do: at the address in the environment, with the pod's token, and
// verifies the server's certificate.
func (r *run) api(ctx context.Context, args []string) int {
	token, errToken := r.System.ReadFile(accountDir + "token")
	ca, errCA := r.System.ReadFile(accountDir + "ca.crt")
	host, port := r.getenv("KUBERNETES_SERVICE_HOST"), r.getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return r.failed(errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT must be defined"))
	}
	if err := cmp.Or(errToken, errCA); err != nil {
		return r.failed(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{DialContext: r.System.Dial, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(host, port)+args[0], nil)
	if err != nil {
		return r.misused(err)
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	response, err := transport.RoundTrip(request)
	if err != nil {
		return r.failed(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(r.Stdout, response.Body); err != nil {
		return r.failed(err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return r.failed(fmt.Errorf("%s: %s", args[0], response.Status))
	}
	return 0
}
