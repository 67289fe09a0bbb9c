package route

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
)

func setBool(to *bool, text string) string {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return "true or false"
	}
	*to = v
	return ""
}

func setFalse(to *bool, text string) string {
	var on bool
	defer func() { *to = !on }() // an invalid value counts as false
	return setBool(&on, text)
}

func setSeconds(to *time.Duration, text string) string {
	n, ok := seconds(text)
	if !ok {
		return "a number of seconds"
	}
	*to = n
	return ""
}

func setNumber(to *int, text string, least, most int) string {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return fmt.Sprintf("a number from %d to %d", least, most)
	}
	*to = n
	return ""
}

func setOneOf(to *string, text string, valid ...string) string {
	if !slices.Contains(valid, text) {
		return strings.Join(valid, " or ")
	}
	*to = text
	return ""
}

// setText sets a text that may be part of a header.
func setText(to *string, text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return "printable ASCII without quotes"
	}
	*to = text
	return ""
}

// setName sets the name of a Secret. Those of other namespaces are refused, as by ingress-nginx: the author of an
// Ingress needs no right to use them.
func setName(to *string, text string) string {
	if len(validation.IsDNS1123Subdomain(text)) > 0 {
		return "the name of a Secret in the Ingress's namespace"
	}
	*to = text
	return ""
}

func setPath(to *string, text string) string {
	if u, err := url.Parse(text); err != nil || !strings.HasPrefix(text, "/") || u.Host != "" {
		return "an absolute path"
	}
	*to = text
	return ""
}

var vhost = regexp.MustCompile(`^[A-Za-z0-9._-]+(:[0-9]+)?$`)

func setHost(to *string, text string) string {
	if !vhost.MatchString(text) {
		return "a host name without variables"
	}
	*to = text
	return ""
}

func setHosts(to *[]string, text string) string {
	var names []string
	for name := range strings.SplitSeq(text, ",") {
		name = strings.ToLower(strings.TrimSpace(name))
		if len(validation.IsDNS1123Subdomain(strings.TrimPrefix(name, "*."))) > 0 {
			return "host names, separated by commas"
		}
		names = append(names, name)
	}
	*to = names
	return ""
}

func setPrefixes(to *[]netip.Prefix, text string) string {
	var list []netip.Prefix
	for one := range strings.SplitSeq(text, ",") {
		prefix, err := ParsePrefix(strings.TrimSpace(one))
		if err != nil {
			return "addresses and CIDRs, separated by commas"
		}
		list = append(list, prefix)
	}
	*to = list
	return ""
}

// ParsePrefix parses an address or a CIDR.
func ParsePrefix(text string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("%q is neither an address nor a CIDR", text)
		}
		prefix = netip.PrefixFrom(ip, ip.BitLen())
	}
	return prefix.Masked(), nil
}

func setCookie(to *string, text string) string {
	if (&http.Cookie{Name: text}).Valid() != nil {
		return "the name of a cookie"
	}
	*to = text
	return ""
}

var tokens = regexp.MustCompile(`^[A-Za-z0-9_*-]+( *, *[A-Za-z0-9_*-]+)*$`)

// setTokens sets names of headers or methods.
func setTokens(to *string, text string) string {
	if !tokens.MatchString(text) {
		return "names, separated by commas"
	}
	*to = text
	return ""
}

// setGroups sets a path with references to the groups of a regular expression.
func setGroups(to *string, text string) string {
	if text == "" || !knows(text, func(name string) bool { return len(name) == 1 && name >= "1" && name <= "9" }) {
		return "a path, with no variables but $1 to $9"
	}
	*to = text
	return ""
}

// setURL sets a URL with variables that Expand knows.
func setURL(to *string, text string) string {
	known := knows(text, func(name string) bool { return slices.Contains(variables, name) })
	plain := os.Expand(text, func(string) string { return "x" })
	if u, err := url.Parse(plain); err != nil || !known ||
		!strings.HasPrefix(text, "/") && u.Scheme != "http" && u.Scheme != "https" && !strings.HasPrefix(text, "$scheme://") {
		return "a URL, with no variables but $" + strings.Join(variables, ", $")
	}
	*to = text
	return ""
}

// knows reports whether all variables of a text are known.
func knows(text string, known func(name string) bool) bool {
	all := true
	os.Expand(text, func(name string) string {
		all = all && known(name)
		return ""
	})
	return all
}

// variables are the variables of nginx that a redirect can have.
var variables = []string{"request_uri", "scheme", "host", "http_host", "uri", "args", "is_args"}

// Expand replaces the variables of a redirect by the parts of a request.
func Expand(text, scheme string, r *http.Request) string {
	return os.Expand(text, func(name string) string {
		switch name {
		case "request_uri":
			return r.URL.RequestURI()
		case "scheme":
			return scheme
		case "host":
			return Host(r.Host)
		case "http_host":
			return r.Host
		case "uri":
			return r.URL.EscapedPath()
		case "args":
			return r.URL.RawQuery
		case "is_args":
			if r.URL.RawQuery != "" {
				return "?"
			}
		}
		return ""
	})
}

// maxWait is the maximum for a duration.
const maxWait = 24 * time.Hour

// seconds parses a positive number of seconds.
func seconds(text string) (time.Duration, bool) {
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "s"), 10, 32)
	return min(time.Duration(n)*time.Second, maxWait), err == nil && n > 0
}

// size parses a number of bytes, as nginx writes them (8m, 1g: powers of 1024), or as a quantity.
func size(text string) (int64, bool) {
	digits := strings.TrimRight(text, "kKmMgG")
	shift := map[string]int{"": 0, "k": 10, "m": 20, "g": 30}
	if by, ok := shift[strings.ToLower(text[len(digits):])]; ok {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err == nil {
			return n << by, n >= 0 && n <= math.MaxInt64>>by
		}
	}
	q, err := resource.ParseQuantity(text)
	return q.Value(), err == nil && q.Sign() >= 0
}
