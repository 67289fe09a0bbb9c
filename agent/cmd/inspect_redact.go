package cmd

import (
	"regexp"
	"strings"
)

// leftOut lists what no report contains.
var leftOut = []string{
	"the data of Secrets and ConfigMaps", "private keys and the state file", "tokens", "passwords in URLs",
	"values of variables, arguments and fields whose names sound secret", "managedFields and last-applied configurations",
}

const secretWords = `passw|passphrase|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential`

var (
	// secretName matches names whose values are omitted.
	secretName = regexp.MustCompile(`(?i)(` + secretWords +
		`|auth[-_]?key|bearer|cookie|dsn$|connection[-_]?string|^pwd$|_pwd$)`)
	// publicName matches names that match secretName, but whose values are names of objects, files or settings.
	publicName = regexp.MustCompile(`(?i)(secrets?(name|namespace|ref|keyref)$|^secrets?$` +
		`|(secret|token)s?[-_]?(file|path|dir|ttl|expiration\w*|seconds|length|type)$` +
		`|^automountserviceaccounttoken$|^serviceaccounttoken$|^imagepullsecrets$|cleanup|clean-up)`)

	jwt      = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)
	bearer   = regexp.MustCompile(`(?i)(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`)
	keyBlock = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	inURL    = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@"]*):[^/\s@"]+@`)
	pair     = regexp.MustCompile(`(?i)([A-Za-z0-9_.-]*(?:` + secretWords + `)[A-Za-z0-9_-]*["']?\s*[=:]\s*)` +
		`("(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;&"'}\\]+)`)
	pairNames = regexp.MustCompile(`(?i)^[A-Za-z0-9_.-]*`)
)

// redacted replaces omitted values.
const redacted = "REDACTED"

// redactText removes keys, tokens and passwords from any text.
func redactText(text []byte) []byte {
	text = keyBlock.ReplaceAll(text, []byte(redacted))
	text = jwt.ReplaceAll(text, []byte(redacted))
	text = bearer.ReplaceAll(text, []byte("${1} "+redacted))
	return inURL.ReplaceAll(text, []byte("${1}:"+redacted+"@"))
}

// redactPairs removes the values of name=value and name: value where the name sounds secret.
func redactPairs(text []byte) []byte {
	return pair.ReplaceAllFunc(text, func(found []byte) []byte {
		if publicName.Match(pairNames.Find(found)) {
			return found
		}
		return pair.ReplaceAll(found, []byte("${1}"+redacted))
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
			if isText && hidden && !strings.HasPrefix(text, "-") { // for example --password, followed by its value
				v[i], hidden = redacted, false
				continue
			}
			hidden = isText && strings.HasPrefix(text, "-") && soundsSecret(text) && !strings.ContainsAny(text, "=:")
			v[i] = redact(v[i], name)
		}
		return v
	case string:
		if soundsSecret(name) && v != "" {
			return redacted
		}
		return string(redactPairs(redactText([]byte(v))))
	}
	return v
}

// soundsSecret reports whether the value of a field with this name is omitted.
func soundsSecret(name string) bool {
	return secretName.MatchString(name) && !publicName.MatchString(name)
}

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
	// An environment variable or a header of a probe has its name in a field of its own.
	if named, ok := obj["name"].(string); ok && soundsSecret(named) {
		if _, ok := obj["value"].(string); ok {
			obj["value"] = redacted
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
				data[key] = redacted
			}
		}
	}
}
