package cmd

import (
	"strings"
	"testing"
)

// A report must not contain secrets, wherever they are, and must contain the rest.
func TestRedact(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ in, redacted, stays string }{
		"a Secret": {`{"kind": "Secret", "data": {"key": "aHVudGVyMg=="}, ` +
			`"stringData": {"k": "aHVudGVyMg=="}}`, "aHVudGVyMg==", `"key": "REDACTED"`},
		"a list of Secrets": {`{"kind": "SecretList", "items": [{"metadata": {"name": "db"}, ` +
			`"data": {"key": "aHVudGVyMg=="}, "type": "Opaque"}]}`, "aHVudGVyMg==", `"name": "db"`},
		"a ConfigMap": {`{"kind": "ConfigMap", "data": {"app.conf": "hunter2"}, "binaryData": {"b": "hunter2"}}`, "hunter2",
			"app.conf"},
		"a variable": {`{"env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "COLOR", ` +
			`"value": "blue"}]}`, "hunter2", "blue"},
		"another variable": {`{"env": [{"name": "API_KEY", "value": "hunter2"}, {"name": "AWS_ACCESS_KEY_ID", ` +
			`"value": "hunter2"}, {"name": "X_TOKEN", "value": "hunter2"}]}`, "hunter2", "X_TOKEN"},
		"a reference": {`{"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "db", ` +
			`"key": "token"}}}], "secretName": "tls", "imagePullSecrets": [{"name": "pull"}]}`, "hunter2",
			`"secretName": "tls"`},
		"an argument":              {`{"args": ["--db-password=hunter2", "--port=80"]}`, "hunter2", "--port=80"},
		"an argument after a flag": {`{"command": ["app", "--token", "hunter2", "--listen", "any"]}`, "hunter2", `"any"`},
		"a flag without a value":   {`{"command": ["app", "--token", "--listen", "any"]}`, "hunter2", "--listen"},
		"a script": {`{"args": ["sh", "-c", "PASSWORD='hunter2 hunter2' app --color=blue"]}`, "hunter2",
			"blue"},
		"a custom field": {`{"kind": "Database", "spec": {"adminPassword": "hunter2", "size": "big", ` +
			`"auth": {"bearerToken": "hunter2"}}}`, "hunter2", "big"},
		"a URL": {`{"spec": {"url": "postgres://user:hunter2@db:5432/x"}}`, "hunter2", "postgres://user:REDACTED@db:5432/x"},
		"a header": {`{"httpHeaders": [{"name": "X-Api-Key", "value": "hunter2"}], ` +
			`"message": "Authorization: Bearer hunter2hunter2"}`, "hunter2", "X-Api-Key"},
		"a token": {`{"message": "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJl.c2lnbmF0dXJl of pod"}`, "c2lnbmF0dXJl", "of pod"},
		"a private key": {`{"tls": "-----BEGIN EC PRIVATE KEY-----\nhunter2\n-----END EC PRIVATE ` +
			`KEY-----\n-----BEGIN CERTIFICATE-----"}`, "hunter2", "BEGIN CERTIFICATE"},
		"half of a private key": {`{"tls": "-----BEGIN PRIVATE KEY-----\nhunter2"}`, "hunter2", "tls"},
		"what was applied": {`{"metadata": {"name": "web", "annotations": ` +
			`{"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "a": "b"}, "managedFields": [{"f:x": "hunter2"}]}}`,
			"hunter2", `"a": "b"`},
		"names that are not secret": {`{"token-ttl": "1h", "automountServiceAccountToken": true, ` +
			`"token-file": "/etc/token", "serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}`, "hunter2",
			`"/etc/token"`},
		"numbers": {`{"resourceVersion": 12345678901234567890, "tokens": 3}`, "hunter2", "12345678901234567890"},
	} {
		out, err := redactJSON([]byte(c.in))
		if err != nil || strings.Contains(string(out), c.redacted) || !strings.Contains(string(out), c.stays) {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
		if again, err := redactJSON(out); err != nil || string(again) != string(out) && !strings.Contains(c.in, "data") {
			t.Errorf("%s, again: %v\n%s", what, err, again)
		}
	}
}

func TestRedactLogs(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`level=info password=hunter2 user=bob`:          `level=info password=REDACTED user=bob`,
		`{"msg":"login","db_password":"hunter2","n":1}`: `{"msg":"login","db_password":REDACTED,"n":1}`,
		`GET https://bob:hunter2@host/path`:             `GET https://bob:REDACTED@host/path`,
		`reading secret-file: /run/secrets/x`:           `reading secret-file: /run/secrets/x`,
		`Secret "db" not found`:                         `Secret "db" not found`,
	} {
		if got := string(redactPairs(redactText([]byte(in)))); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}
