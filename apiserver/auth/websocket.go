package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// socketToken is the prefix of the subprotocol in which a browser, which cannot set headers of a WebSocket, sends a
// bearer token. The server never selects it (upstream: authentication/request/websocket).
const socketToken = "base64url.bearer.authorization.k8s.io."

const protocols = "Sec-Websocket-Protocol"

// IsWebSocket reports whether a request opens a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// TakeSocketToken moves the token in the subprotocols of a WebSocket to the Authorization header, unless the header is
// set, so that later handlers do not see the subprotocol. The client must offer another subprotocol for the server to
// select.
func TakeSocketToken(r *http.Request) error {
	if !IsWebSocket(r) {
		return nil
	}
	var token string
	var others []string
	for _, header := range r.Header[protocols] {
		for p := range strings.SplitSeq(header, ",") {
			p = strings.TrimSpace(p)
			encoded, ok := strings.CutPrefix(p, socketToken)
			switch {
			case !ok:
				others = append(others, p)
			case token != "":
				return errors.New("multiple base64.bearer.authorization tokens specified")
			default:
				plain, err := base64.RawURLEncoding.DecodeString(encoded)
				if err != nil || len(plain) == 0 || !utf8.Valid(plain) {
					return errors.New("invalid base64.bearer.authorization token encoding")
				}
				token = string(plain)
			}
		}
	}
	switch {
	case token == "":
		return nil
	case len(others) == 0:
		return errors.New("missing additional subprotocol")
	}
	r.Header.Set(protocols, strings.Join(others, ","))
	if Bearer(r) == "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}
