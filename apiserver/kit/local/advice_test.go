package local_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/apiserver/kit/local"
)

// Every error of a request says what to do next.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		code   int
		answer string
		path   string
		want   []string
	}{
		"in another namespace": {code: 404, answer: status(404, "NotFound", `"kind":"pods","name":"web-0"`),
			want: []string{`pods "web-0" not found`, "add --namespace=shop"}},
		"mistyped": {code: 404, answer: status(404, "NotFound", `"kind":"pods","name":"web-frotn"`),
			want: []string{"did you mean web-front --namespace=shop?", "kubectl get pods --all-namespaces"}},
		"nowhere": {code: 404, answer: status(404, "NotFound", `"kind":"pods","name":"nobody"`),
			want: []string{"kubectl get pods --all-namespaces lists"}},
		"of a group": {code: 404, answer: status(404, "NotFound",
			`"group":"apps","kind":"deployments","name":"front"`), want: []string{"add --namespace=shop"}},
		"of an unknown group": {code: 404, answer: status(404, "NotFound", `"group":"acme.com","kind":"things","name":"x"`),
			want: []string{"kubectl get things.acme.com --all-namespaces"}},
		"an image": {code: 404, answer: status(404, "NotFound", `"kind":"images","name":"r/x:1"`),
			want: []string{"monopod images ls"}},
		"wrong token": {code: 401, answer: status(401, "Unauthorized", ""), want: []string{"not valid any more",
			"copy admin.kubeconfig again"}},
		"no rights": {code: 403, answer: status(403, "Forbidden", ""), want: []string{"kubeconfig of an admin"}},
		"full disk": {code: 507, answer: status(507, "InsufficientStorage", ""),
			want: []string{"free space on the disk"}},
		"too many requests": {code: 429, answer: status(429, "TooManyRequests", ""), want: []string{"wait a moment"}},
		"not ready":         {code: 503, answer: status(503, "ServiceUnavailable", ""), want: []string{"monopod status"}},
		"wrong version": {code: 404, answer: "404 page not found", path: "/monopod/why?kind=pod",
			want: []string{"the server has no /monopod/why: ", "an older one than this program"}},
		"a proxy's page": {code: 502, answer: "bad gateway", want: []string{"bad gateway"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/api/v1/pods":
					fmt.Fprint(w, `{"items":[{"metadata":{"name":"web-0","namespace":"shop"}},{"metadata":{"name":"web-front",`+
						`"namespace":"shop"}}]}`)
				case "/apis/apps":
					fmt.Fprint(w, `{"preferredVersion":{"groupVersion":"apps/v1"}}`)
				case "/apis/apps/v1/deployments":
					fmt.Fprint(w, `{"items":[{"metadata":{"name":"front","namespace":"shop"}}]}`)
				case "/apis/acme.com":
					w.WriteHeader(http.StatusNotFound)
				default:
					w.WriteHeader(c.code)
					fmt.Fprint(w, c.answer)
				}
			}))
			t.Cleanup(server.Close)
			if c.path == "" {
				c.path = "/asked"
			}
			says(t, kubeconfig(t, server.URL, authority(server)), c.path, c.want...)
		})
	}
}

// The error of a failed connection says what to do next.
func TestConnectionsThatFailSayWhatToDo(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	secure, plain := httptest.NewTLSServer(handler), httptest.NewServer(handler)
	t.Cleanup(secure.Close)
	t.Cleanup(plain.Close)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	ca := authority(secure)
	for name, c := range map[string]struct {
		url, ca string
		want    []string
	}{
		"no server": {"https://" + nobody.Addr().String(), ca, []string{"no monopod runs", "monopod serve",
			"--kubeconfig"}},
		"unknown authority":  {secure.URL, "", []string{"of another installation", "copy admin.kubeconfig again"}},
		"name not certified": {strings.Replace(secure.URL, "127.0.0.1", "localhost", 1), ca, []string{"--tls-san"}},
		"not HTTPS":          {strings.Replace(plain.URL, "http:", "https:", 1), ca, []string{"which speaks HTTPS"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			says(t, kubeconfig(t, c.url, c.ca), "/asked", c.want...)
		})
	}
	t.Run("no socket", func(t *testing.T) {
		t.Parallel()
		_, err := local.At(t.TempDir()).Read(t.Context(), "/asked")
		if err == nil || !strings.Contains(err.Error(), "start it with monopod serve") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("no kubeconfig", func(t *testing.T) {
		t.Parallel()
		place := local.Place{Kubeconfig: filepath.Join(t.TempDir(), "none")}
		if _, err := place.Open(); err == nil || !strings.Contains(err.Error(), "--data-dir") {
			t.Errorf("got %v", err)
		}
	})
}

// says checks the error of a request to the server of a kubeconfig.
func says(t *testing.T, file, path string, want ...string) {
	t.Helper()
	place := local.Place{Kubeconfig: file}
	server, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = server.Read(t.Context(), path)
	for _, part := range want {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

func status(code int, reason, details string) string {
	message := "no"
	if _, name, ok := strings.Cut(details, `"name":"`); ok {
		_, kind, _ := strings.Cut(details, `"kind":"`)
		kind, _, _ = strings.Cut(kind, `"`)
		message = fmt.Sprintf(`%s \"%s\" not found`, kind, strings.TrimSuffix(name, `"`))
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"%s","reason":"%s","code":%d,`+
		`"details":{%s}}`, message, reason, code, details)
}

func authority(server *httptest.Server) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// kubeconfig writes a kubeconfig. Without ca, clients use the machine's certificate authorities.
func kubeconfig(t *testing.T, url, ca string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	trust := ""
	if ca != "" {
		path := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(path, []byte(ca), 0o600); err != nil {
			t.Fatal(err)
		}
		trust = ", certificate-authority: " + path
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"clusters: [{name: a, cluster: {server: %q%s}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n"+
		"users: [{name: a, user: {token: t}}]\n", url, trust)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
