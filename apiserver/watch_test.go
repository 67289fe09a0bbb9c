package apiserver_test

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (a API) socket(path string, protocols ...string) *websocket.Conn {
	a.t.Helper()
	cfg, err := websocket.NewConfig(strings.Replace(a.url, "http", "ws", 1)+path, a.url)
	if err != nil {
		a.t.Fatal(err)
	}
	if cfg.Protocol = protocols; protocols == nil {
		cfg.Header.Set("Authorization", "Bearer "+token)
	}
	conn, err := websocket.DialConfig(cfg)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { conn.Close() })
	return conn
}

func TestWatchOverAWebSocket(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"a"}}`)
	conn := a.socket(confs + "?watch=1&timeoutSeconds=2")
	a.read("DELETE", confs+"/a", "")
	for _, want := range []string{`{"type":"ADDED","object":{"kind":"ConfigMap"`,
		`{"type":"DELETED","object":{"kind":"ConfigMap"`} {
		var message string
		if err := websocket.Message.Receive(conn, &message); err != nil || !strings.HasPrefix(message, want) ||
			strings.Count(message, "\n") != 1 {
			t.Errorf("%q, %v", message, err)
		}
	}
	var rest string
	if err := websocket.Message.Receive(conn, &rest); err == nil {
		t.Errorf("after its timeout the watch sent %q", rest)
	}
}

// A browser sends its token as a subprotocol, besides the one that it wants to use.
func TestTokenOfAWebSocket(t *testing.T) {
	t.Parallel()
	a := serve(t)
	bearer := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	conn := a.socket(confs+"?watch=1", bearer(token), "base64.binary.k8s.io")
	if got := fmt.Sprint(conn.Config().Protocol); got != "[base64.binary.k8s.io]" {
		t.Errorf("agreed to %s", got)
	}
	for name, asked := range map[string]string{"wrong": bearer("wrong") + ", x", "nothing to speak": bearer(token),
		"none": "x"} {
		code, out := a.read("GET", confs+"?watch=1", "", "Authorization: ", "Connection: Upgrade", "Upgrade: websocket",
			"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: "+asked)
		if code != 401 {
			t.Errorf("%s: %d %v", name, code, out)
		}
	}
}

func TestTableWatchBeginsWithColumns(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", pods, podA)
	resp := a.do("GET", pods+
		"?watch=1&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", "",
		"Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
	dec := json.NewDecoder(resp.Body)
	var got []string
	for {
		var ev struct {
			Type   string
			Object metav1.Table
		}
		if err := dec.Decode(&ev); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var object metav1.PartialObjectMetadata
		if err := json.Unmarshal(ev.Object.Rows[0].Object.Raw, &object); err != nil {
			t.Fatal(err)
		}
		got = append(got,
			fmt.Sprint(ev.Type, " ", object.Name, object.Annotations, len(ev.Object.ColumnDefinitions) > 0,
				ev.Object.ResourceVersion != ""))
	}
	want := "[ADDED amap[] true true BOOKMARK map[k8s.io/initial-events-end:true] false true BOOKMARK map[] false true]"
	if fmt.Sprint(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.read("POST", confs, `{"metadata":{"name":"c"},"data":{"k":"`+strings.Repeat("x", 150_000)+`"}}`, asJSON)
	for _, c := range []struct {
		path, takes, accept, encoding string
	}{
		{confs, "gzip", "", "gzip"},
		{confs, "gzip", "application/yaml", "gzip"},
		{confs, "gzip", "application/vnd.kubernetes.protobuf", "gzip"},
		{confs + "/c", "deflate, gzip;q=0.5", "", "gzip"},
		{confs + "/c", "gzip;q=0", "", ""},
		{confs + "/c", "identity", "", ""},
		{confs + "?limit=1&fieldSelector=metadata.name%3Dnone", "gzip", "", ""},
		{confs + "?watch=1&timeoutSeconds=1", "gzip", "", ""},
	} {
		resp := a.do("GET", c.path, "", "Accept-Encoding: "+c.takes, "Accept: "+c.accept)
		got := resp.Header.Get("Content-Encoding")
		if got != c.encoding || (got == "gzip") != (resp.Header.Get("Vary") == "Accept-Encoding") {
			t.Errorf("%s for %q: encoding %q, %v", c.path, c.takes, got, resp.Header)
		}
		if got != "gzip" {
			continue
		}
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(z); err != nil || len(data) < 150_000 {
			t.Errorf("%s: %d bytes, %v", c.path, len(data), err)
		}
	}
}

// The initial events of a watch have the version that the client watches, like the later ones.
func TestWatchBeginsInItsVersion(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const scalers = "/namespaces/default/horizontalpodautoscalers"
	a.read("POST", "/apis/autoscaling/v2"+scalers,
		`{"metadata":{"name":"a"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment",`+
			`"name":"a"}}}`)
	var message string
	if err := websocket.Message.Receive(a.socket("/apis/autoscaling/v1"+scalers+"?watch=1&timeoutSeconds=2"),
		&message); err != nil {
		t.Fatal(err)
	}
	if want := `{"type":"ADDED","object":{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1"`; !strings.HasPrefix(message, want) {
		t.Errorf("got %.120s, want %s", message, want)
	}
}
