package cmd

import (
	"regexp"
	"strings"
)

// leftOut is what no report contains.
var leftOut = []string{
	"the data of Secrets and ConfigMaps", "private keys and the state file", "tokens", "passwords in URLs",
	"values of variables, arguments and fields whose names sound secret", "managedFields and last-applied configurations",
}

var (
	// secretName matches names whose values are omitted.
	secretName = regexp.MustCompile(
		`(?i)(passw|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth[-_]?key|bearer|cookie|dsn$|connection[-_]?string|^pwd$|_pwd$)`)
	// openName matches those of secretName that are names of objects, files or settings, and not secret.
	openName = regexp.MustCompile(
		`(?i)(secrets?(name|namespace|ref|keyref)$|^secrets?$|(secret|token)s?[-_]?(file|path|dir|ttl|expiration\w*|seconds|length|type)$|^automountserviceaccounttoken$|^serviceaccounttoken$|^imagepullsecrets$|cleanup|clean-up)`)

	jwt      = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)
	bearer   = regexp.MustCompile(`(?i)(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`)
	keyBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	inURL    = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"]*):[^/\s@"]+@`)
	pair     = regexp.MustCompile(
		`(?i)([A-Za-z0-9_.-]*(?:passw|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential)[A-Za-z0-9_-]*["']?\s*[=:]\s*)("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'}\\]+)`)
	pairNames = regexp.MustCompile(`(?i)^[A-Za-z0-9_.-]*`)
)

// gone stands for what is omitted.
const gone = "REDACTED"

// redactText removes what looks like a secret from any text.
func redactText(text []byte) []byte {
	text = keyBlock.ReplaceAll(text, []byte(gone))
	text = jwt.ReplaceAll(text, []byte(gone))
	text = bearer.ReplaceAll(text, []byte("${1} "+gone))
	return inURL.ReplaceAll(text, []byte("${1}:"+gone+"@"))
}

// redactPairs removes the values of name=value and name: value where the name sounds secret.
func redactPairs(text []byte) []byte {
	return pair.ReplaceAllFunc(text, func(found []byte) []byte {
		if openName.Match(pairNames.Find(found)) {
			return found
		}
		return pair.ReplaceAll(found, []byte("${1}"+gone))
	})
}

// redact removes secrets from a value that was decoded from JSON; name is that of its field.
func redact(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		return redactObject(v)
	case []any:
		hidden := false
		for i := range v {
			text, isText := v[i].(string)
			if isText && hidden && !strings.HasPrefix(text, "-") { // --password, and then what it is
				v[i], hidden = gone, false
				continue
			}
			hidden = isText && strings.HasPrefix(text, "-") && sounds(text) && !strings.ContainsAny(text, "=:")
			v[i] = redact(v[i], name)
		}
		return v
	case string:
		if sounds(name) && v != "" {
			return gone
		}
		return string(redactPairs(redactText([]byte(v))))
	}
	return v
}

// sounds reports whether the value of a field with this name is omitted.
func sounds(name string) bool { return secretName.MatchString(name) && !openName.MatchString(name) }

func redactObject(obj map[string]any) any {
	if meta, ok := obj["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
		if annotations, ok := meta["annotations"].(map[string]any); ok {
			delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
		}
	}
	kind, _ := obj["kind"].(string)
	if items, ok := obj["items"].([]any); ok && (kind == "SecretList" || kind == "ConfigMapList") {
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				hideData(item)
			}
		}
	}
	if kind == "Secret" || kind == "ConfigMap" {
		hideData(obj)
	}
	// A variable, or a header of a probe: its name is a value beside it.
	if named, ok := obj["name"].(string); ok && sounds(named) {
		if _, ok := obj["value"].(string); ok {
			obj["value"] = gone
		}
	}
	for key, value := range obj {
		obj[key] = redact(value, key)
	}
	return obj
}

// hideData keeps only the names of values.
func hideData(obj map[string]any) {
	for _, field := range []string{"data", "stringData", "binaryData"} {
		if data, ok := obj[field].(map[string]any); ok {
			for key := range data {
				data[key] = gone
			}
		}
	}
}
