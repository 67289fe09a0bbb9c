package route

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"regexp/syntax"
	"strings"
)

// maxPattern is the maximum size of a regular expression, in instructions of package regexp, about 40 bytes each.
const maxPattern = 5000

// Compile compiles a regular expression unless it is too large: a{999} costs the memory of 999 letters.
func Compile(text string) (*regexp.Regexp, error) {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if patternSize(parsed) > maxPattern {
		return nil, errors.New("the regular expression is too large")
	}
	return regexp.Compile(text)
}

func patternSize(re *syntax.Regexp) int {
	n := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		n += patternSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return n
}

// CompilePath returns the regular expression of a path, which ignores case and matches from the path's beginning, as
// that of ingress-nginx.
func CompilePath(path string) (*regexp.Regexp, error) { return Compile("(?is)^(?:" + path + ")") }

// PlainPath returns the regular expression of a path that is not one itself.
func PlainPath(path string, exact bool) *regexp.Regexp {
	if exact {
		return regexp.MustCompile("(?is)^" + regexp.QuoteMeta(path) + "$")
	}
	return regexp.MustCompile("(?is)^" + regexp.QuoteMeta(strings.TrimRight(path, "/")) + "(?:/|$)")
}

// Rewrite returns the path and the query for an endpoint: the target with the groups of the pattern in the path.
func Rewrite(target string, pattern *regexp.Regexp, path, query string) (newPath, newQuery string) {
	target, args, _ := strings.Cut(target, "?")
	newPath, newQuery = Groups(target, pattern, path), query
	if !strings.HasPrefix(newPath, "/") {
		newPath = "/" + newPath
	}
	newPath, _ = Path(newPath) // a group can begin with ../
	if args != "" {
		newQuery = os.Expand(args, func(n string) string { return url.QueryEscape(Groups("$"+n, pattern, path)) })
		if query != "" {
			newQuery += "&" + query
		}
	}
	return newPath, newQuery
}

// Groups returns a text with the groups of the pattern in the path.
func Groups(text string, pattern *regexp.Regexp, path string) string {
	var groups []string
	if pattern != nil {
		groups = pattern.FindStringSubmatch(path)
	}
	return os.Expand(text, func(name string) string {
		if n := int(name[0] - '0'); len(name) == 1 && n < len(groups) {
			return groups[n]
		}
		return ""
	})
}
