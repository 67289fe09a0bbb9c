package auth_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"monopod/apiserver/auth"
)

// The subprotocols contain the token; the others remain for later handlers.
func TestTakeSocketToken(t *testing.T) {
	t.Parallel()
	const at = "base64url.bearer.authorization.k8s.io."
	for name, c := range map[string]struct {
		upgrade, authorization string
		asked                  []string
		bearer, left, err      string
	}{
		"none": {asked: []string{"v5.channel.k8s.io"}, left: "v5.channel.k8s.io"},
		"first": {asked: []string{at + "czNjcmV0, v4.channel.k8s.io,v5.channel.k8s.io"}, bearer: "s3cret",
			left: "v4.channel.k8s.io,v5.channel.k8s.io"},
		"last, other header": {asked: []string{"binary.k8s.io", at + "czNjcmV0"}, bearer: "s3cret", left: "binary.k8s.io"},
		"alphabet of URLs":   {asked: []string{at + "fn5-Pz8_,x"}, bearer: "~~~???", left: "x"},
		"with a header": {authorization: "Bearer other", asked: []string{at + "czNjcmV0,x"}, bearer: "other",
			left: "x"},
		"alone": {asked: []string{at + "czNjcmV0"}, err: "missing additional subprotocol"},
		"two": {asked: []string{at + "YQ," + at + "Yg,x"},
			err: "multiple base64.bearer.authorization tokens specified"},
		"padded":              {asked: []string{at + "YQ==,x"}, err: "invalid base64.bearer.authorization token encoding"},
		"empty":               {asked: []string{at + ",x"}, err: "invalid base64.bearer.authorization token encoding"},
		"invalid UTF-8":       {asked: []string{at + "_w,x"}, err: "invalid base64.bearer.authorization token encoding"},
		"another upgrade":     {upgrade: "SPDY/3.1", asked: []string{at + "czNjcmV0,x"}, left: at + "czNjcmV0,x"},
		"upgrade in any case": {upgrade: "WebSocket", asked: []string{at + "czNjcmV0,x"}, bearer: "s3cret", left: "x"},
		"another prefix": {asked: []string{"base64.bearer.authorization.k8s.io.YQ,x"},
			left: "base64.bearer.authorization.k8s.io.YQ,x"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Connection", "keep-alive, Upgrade")
		r.Header.Set("Upgrade", "websocket")
		if c.upgrade != "" {
			r.Header.Set("Upgrade", c.upgrade)
		}
		if c.authorization != "" {
			r.Header.Set("Authorization", c.authorization)
		}
		for _, p := range c.asked {
			r.Header.Add("Sec-WebSocket-Protocol", p)
		}
		err := auth.TakeSocketToken(r)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", name, err, c.err)
			}
			continue
		}
		if left := strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","); err != nil || auth.Bearer(r) != c.bearer ||
			left != c.left {
			t.Errorf("%s: bearer %q, left %q, %v", name, auth.Bearer(r), left, err)
		}
	}
}
