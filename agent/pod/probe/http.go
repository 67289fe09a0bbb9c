package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// maxRedirects is the maximum number of redirects within a container (upstream: 10).
const maxRedirects = 10

// http succeeds for a status from 200 to 399. A redirect that is not followed is a success with a warning. A
// response that breaks off is an unknown result.
func (c Caller) http(ctx context.Context, a *corev1.HTTPGetAction, t Target) (warning string, err error) {
	req, err := request(ctx, a, t, "kube-probe/1.37")
	if err != nil {
		return "", &UnknownError{err}
	}
	resp, err := c.client().Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxOutput))
	switch {
	case err != nil:
		return "", &UnknownError{err}
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		return "", fmt.Errorf("HTTP probe failed with statuscode: %d", resp.StatusCode)
	case resp.StatusCode >= 300:
		return "Probe terminated redirects, Response body: " + clip(body), nil
	}
	return "", nil
}

// HTTPHook sends the request of a lifecycle hook once. Like upstream, any response is a success, whatever its status.
// If the server answers an HTTPS hook with plain HTTP, HTTPHook repeats the request without TLS and credentials, and
// returns a warning.
func (c Caller) HTTPHook(ctx context.Context, a *corev1.HTTPGetAction, t Target,
	timeout time.Duration) (warning string, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := request(ctx, a, t, "kube-lifecycle/1.37")
	if err != nil {
		return "", err
	}
	client := c.client()
	err = sendOnce(client, req)
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return "", err
	}
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if sendOnce(client, plain) != nil {
		return "", err
	}
	return fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host),
		nil
}

func sendOnce(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxOutput))
	return resp.Body.Close()
}

// client verifies no certificates and uses no proxy.
func (c Caller) client() *http.Client {
	return &http.Client{CheckRedirect: sameHost, Transport: &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true, DialContext: c.dial,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as upstream: a probe carries no secret
	}}
}

// sameHost follows only redirects to the same host. A redirect to another host is the response.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

func request(ctx context.Context, a *corev1.HTTPGetAction, t Target, agent string) (*http.Request, error) {
	port, err := Port(a.Port, t.Ports)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a.Path)
	if err != nil { // it passed validation
		u = &url.URL{Path: a.Path}
	}
	u.Scheme, u.Host = strings.ToLower(cmp.Or(string(a.Scheme), "http")),
		net.JoinHostPort(cmp.Or(a.Host, t.Host), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = headers(a.HTTPHeaders, agent)
	req.Host = req.Header.Get("Host")
	return req, nil
}

// headers returns the action's headers, and defaults of User-Agent and Accept. An empty Accept removes the header.
func headers(given []corev1.HTTPHeader, agent string) http.Header {
	all := http.Header{}
	for _, h := range given {
		all.Add(h.Name, h.Value)
	}
	if _, set := all["User-Agent"]; !set {
		all.Set("User-Agent", agent)
	}
	if accept, set := all["Accept"]; !set {
		all.Set("Accept", "*/*")
	} else if accept[0] == "" {
		all.Del("Accept")
	}
	return all
}
