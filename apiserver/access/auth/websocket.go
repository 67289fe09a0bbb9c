package auth

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"
)

// socketToken begins the subprotocol by which a browser, which cannot set headers
// of a WebSocket, sends a bearer token; it is never the one that is spoken
// (upstream: authentication/request/websocket).
const socketToken = "base64url.bearer.authorization.k8s.io."

const protocols = "Sec-Websocket-Protocol"

// IsWebSocket says that a request opens a WebSocket.
func IsWebSocket(r *http.Request) bool {
	return strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade") &&
		strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

// TakeSocketToken turns the token among the subprotocols of a WebSocket into the
// request's bearer token, unless it has one, so that nobody behind sees or speaks
// it. Another subprotocol must be offered: the server has to answer with one.
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
