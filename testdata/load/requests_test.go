package load_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// request is an HTTP request with a JSON body.
type request struct {
	method, path, body string
}

// open sends a request and returns the response with an unread body. A status of 300 or more is an error.
func (r request) open(client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequest(r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity") // client and server share the CPUs, so avoid decompression
	req.Header.Set("Content-Type", "application/json")
	if r.method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := client.Do(req)
	if err != nil || resp.StatusCode < http.StatusMultipleChoices {
		return resp, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1000))
	return nil, errors.Join(err, fmt.Errorf("%s %s: %s %s", r.method, r.path, resp.Status, text))
}

// do sends a request and reads the whole response.
func (t *target) do(r request) error {
	resp, err := r.open(t.http, t.url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// each calls do for 0 to n-1 with a number of concurrent workers. A worker stops at its first error.
func each(workers, n int, do func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make([]error, workers)
	for w := range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed[w] == nil; i = int(next.Add(1)) - 1 {
				failed[w] = do(i)
			}
		})
	}
	group.Wait()
	return cmp.Or(failed...) // one error is enough, the others are alike
}

// namespace creates a namespace, waits until it accepts pods, and returns its path.
func (t *target) namespace(b *testing.B, name string) (path string) {
	b.Helper()
	path = "/api/v1/namespaces/" + name
	if err := t.do(
		request{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + name +
			`"}}`}); err != nil {
		b.Fatal(err)
	}
	// Pods need the service account, which a controller creates.
	for until := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := t.do(request{method: http.MethodPost, path: path + "/pods", body: podBody("first")})
		if err == nil {
			err = t.do(request{method: http.MethodDelete, path: path + "/pods/first?gracePeriodSeconds=0"})
		}
		if err == nil {
			return path
		}
		if time.Now().After(until) {
			b.Fatal(err)
		}
	}
}

func number(i int) string { return fmt.Sprintf("%05d", i) }

var padding = strings.Repeat("0123456789abcdef", 30)

// configMapBody returns about 1 KB of JSON.
func configMapBody(name string) string {
	return fmt.Sprintf(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"app":"load"}},"data":{"a":%q,"b":%q}}`, name,
		padding, padding[:400])
}

// podBody returns about 1.5 KB of JSON of a pod that no scheduler binds.
func podBody(name string) string {
	env := make([]string, 4)
	for i := range env {
		env[i] = fmt.Sprintf(`{"name":"SETTING_%d","value":"some-value-of-modest-length"}`, i)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"load","app.kubernetes.io/name":"load","tier":"load"},"annotations":{"load/padding":%q}},
"spec":{"schedulerName":"nobody","automountServiceAccountToken":false,"restartPolicy":"Always","terminationGracePeriodSeconds":30,"containers":[{"name":"main",
"image":"registry.example/load/app:1.0","imagePullPolicy":"IfNotPresent","command":["/bin/app","--listen=:8080","--verbose"],"env":[%s],
"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],
"resources":{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"cpu":"100m","memory":"64Mi"}}}]}}`, name, padding, strings.Join(env, ","))
}
