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

// request is what a client sends.
type request struct {
	method, path, body string
}

// open sends a request and returns the response once its header has come.
func (r request) open(client *http.Client, url string) (*http.Response, error) {
	req, err := http.NewRequest(r.method, url+r.path, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity") // the client's CPU is the server's, too
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

// do sends a request and reads all of the response.
func (t *target) do(r request) error {
	resp, err := r.open(t.http, t.url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// each calls do for 0 to n-1, by so many workers at once, each until a call fails.
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
	return cmp.Or(failed...) // all would say the same
}

// namespace makes a namespace in which pods can be created, and returns its path.
func (t *target) namespace(b *testing.B, name string) (path string) {
	b.Helper()
	path = "/api/v1/namespaces/" + name
	if err := t.do(request{method: http.MethodPost, path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + name + `"}}`}); err != nil {
		b.Fatal(err)
	}
	for until := time.Now().Add(15 * time.Second); ; time.Sleep(20 * time.Millisecond) { // its service account comes later
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

// configMapBody is some 1 KB of JSON.
func configMapBody(name string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"app":"web"}},"data":{"settings":%q,"more":%q}}`,
		name, strings.Repeat("key=value;", 50), strings.Repeat("name: text, ", 30))
}

// podBody is some 1.3 KB of JSON of a pod that no scheduler takes.
func podBody(name string) string {
	const env = `{"name":"ADDRESS","value":"http://service.namespace.svc:8080"},{"name":"LEVEL","value":"information"},{"name":"REGION","value":"somewhere-in-the-north"}`
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"web","tier":"front"},"annotations":{"example.org/note":%q}},
"spec":{"schedulerName":"nobody","automountServiceAccountToken":false,"terminationGracePeriodSeconds":30,"containers":[{"name":"main","image":"registry.example.org/team/web:1.4.2",
"args":["--listen=:8080","--log-level=info"],"env":[%s],"ports":[{"name":"http","containerPort":8080}],
"resources":{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"cpu":"200m","memory":"64Mi"}}}]}}`, name, strings.Repeat("some text ", 40), env)
}
