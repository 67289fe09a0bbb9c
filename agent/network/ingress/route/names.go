package route

import (
	"path"
	"strings"
)

// Host returns the host of a Host header in the form that rules have: without port, brackets and the dot at the end,
// in lower case.
func Host(header string) string {
	host := header
	if strings.HasPrefix(host, "[") {
		host, _, _ = strings.Cut(host[1:], "]")
	} else if colon := strings.LastIndexByte(host, ':'); colon >= 0 {
		host = host[:colon]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// Path returns the decoded path of a request in the form that rules match: dot segments are resolved and repeated
// slashes count as one, since the endpoint may interpret them so and would otherwise receive a request that no rule
// sends there. It returns false if the path is not absolute.
func Path(decoded string) (cleaned string, ok bool) {
	if !strings.HasPrefix(decoded, "/") {
		return "", false
	}
	if !strings.Contains(decoded, "//") && !strings.Contains(decoded, "/.") {
		return decoded, true
	}
	cleaned = path.Clean(decoded)
	ends := strings.HasSuffix(decoded, "/") || strings.HasSuffix(decoded, "/.") || strings.HasSuffix(decoded, "/..")
	if cleaned != "/" && ends {
		cleaned += "/"
	}
	return cleaned, true
}
