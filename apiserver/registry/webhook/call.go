// Package webhook calls webhooks over TLS, by URL or at an endpoint of a Service. It limits the time of a call, and the
// size and complexity of the response.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod/apiserver/kit/bounded"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/endpoint"
)

const (
	// maxResponse is the maximum size of a response in bytes: a base64 patch that replaces the largest object fits.
	maxResponse = 8 << 20
	// idleConnections is the maximum number of idle connections of a webhook, which close after idleTime.
	idleConnections = 4
	idleTime        = time.Minute
	// defaultPort is the default port of a Service.
	defaultPort = 443
)

// Dial connects to an address.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Network connects Clients to their targets.
type Network struct {
	API  endpoint.Reader // finds the endpoints of Services
	Dial Dial            // nil: the system's dialer
}

// Target is the address of a webhook: a URL, or a Service with a path.
type Target struct {
	URL                      string // empty: the Service
	Namespace, Service, Path string
	Port                     int32 // of the Service; 0: 443
	CABundle                 []byte
}

// TargetOf returns the target of a webhook's configuration.
func TargetOf(url *string, service *admissionv1.ServiceReference, ca []byte) Target {
	to := Target{CABundle: ca}
	if url != nil {
		to.URL = *url
	}
	if service != nil {
		to.Namespace, to.Service = service.Namespace, service.Name
		if service.Path != nil {
			to.Path = *service.Path
		}
		if service.Port != nil {
			to.Port = *service.Port
		}
	}
	return to
}

// Client calls one Target. It keeps connections between calls until Close.
type Client struct {
	url  string
	http http.Client
	err  error // the target is invalid

	answers bounded.Weigher
}

// New returns the Client of a target.
func New(to Target, network Network) *Client {
	dial := network.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	c := &Client{url: cleanURL(to.URL)}
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(to.CABundle) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(to.CABundle) {
			c.err = errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	if to.URL == "" {
		c.url, secure.ServerName = to.Address()
		dial = to.Dialer(network.API, dial)
	}
	c.http = http.Client{
		Transport: &http.Transport{
			DialContext: dial, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleTime, MaxResponseHeaderBytes: 64 << 10,
		},
		// A webhook must not redirect the server to other addresses.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// cleanURL returns a URL with a clean path, as upstream's client does: many servers redirect other paths.
func cleanURL(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Path == "" {
		return address
	}
	u.Path, u.RawPath = path.Join("/", u.Path), ""
	return u.String()
}

// Address returns the URL of a Service, and the name in its certificate.
func (t *Target) Address() (address, name string) {
	name = t.Service + "." + t.Namespace + ".svc"
	u := url.URL{Scheme: "https", Host: net.JoinHostPort(name, strconv.Itoa(int(t.port()))), Path: t.Path}
	return cleanURL(u.String()), name
}

func (t *Target) port() int32 {
	if t.Port == 0 {
		return defaultPort
	}
	return t.Port
}

// Dialer returns a Dial that connects to an endpoint of the Service. Each connection may use another endpoint.
func (t *Target) Dialer(api endpoint.Reader, dial Dial) Dial {
	ref := client.Ref{Resource: client.Services, Namespace: t.Namespace, Name: t.Service}
	port := strconv.Itoa(int(t.port()))
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		obj, err := api.Get(ctx, ref)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("service %q not found", ref.Name)
		}
		if err != nil {
			return nil, err
		}
		service := obj.(*corev1.Service)
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			return dial(ctx, network, net.JoinHostPort(service.Spec.ExternalName, port))
		}
		host, err := endpoint.Of(ctx, api, service, service.Name, port)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, host)
	}
}

// Close closes idle connections. Running calls continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Post sends body as JSON and decodes the response into answer, a pointer. ctx should have a deadline, which Post also
// sends to the webhook.
func (c *Client) Post(ctx context.Context, body, answer any) error {
	if c.err != nil {
		return c.err
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	address := c.url
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 { // in whole seconds, rounded up
			address += "?timeout=" + (left + time.Second - 1).Truncate(time.Second).String()
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(data))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, */*")
	r.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	errTooLarge := fmt.Errorf("the response is larger than %d bytes", maxResponse)
	if response.ContentLength > maxResponse {
		return errTooLarge
	}
	data, err = io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return err
	case len(data) > maxResponse:
		return errTooLarge
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		return statusError(response.StatusCode, data)
	}
	if _, err := c.answers.JSON(data, answer); err != nil { // 8 MiB of "0," take 1 GiB to decode
		return fmt.Errorf("the response is not accepted: %w", err)
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return nil
}

// Maximum lengths of texts that errors quote from a response, in bytes.
const (
	maxField = 256
	maxBody  = 2048
)

// Truncate shortens a field of a response for an error.
func Truncate(text string) string { return text[:min(len(text), maxField)] }

// statusError returns client-go's error for a response without success.
func statusError(code int, data []byte) error {
	var status metav1.Status
	if json.Unmarshal(data, &status) == nil && status.Kind == "Status" && status.Status == metav1.StatusFailure {
		return &apierrors.StatusError{ErrStatus: status}
	}
	text := strings.TrimSpace(strings.ToValidUTF8(string(data[:min(len(data), maxBody)]), ""))
	return apierrors.NewGenericServerResponse(code, "post", schema.GroupResource{}, "", text, 0, true)
}
