package route

import (
	"net/http"
	"regexp"
)

// maxWeight is the maximum of a canary's weight.
const maxWeight = 1_000_000

// Canary says which requests for the paths of other Ingresses go to this one. The header precedes the cookie, and that
// the weight.
type Canary struct {
	On            bool
	Weight, Total int    // of Total requests, Weight go to the canary; Total 0: 100
	Header        string // with the value always or never
	Value         string // of the header, instead of always and never
	Pattern       *regexp.Regexp
	Cookie        string // with the value always or never
}

func setPattern(to **regexp.Regexp, text string) string {
	re, err := Compile(text)
	if err != nil {
		return "a regular expression"
	}
	*to = re
	return ""
}

// Chosen reports whether a request goes to the canary; random returns a number below n.
func (c *Canary) Chosen(r *http.Request, random func(n int) int) bool {
	if c.Header != "" {
		if values := r.Header.Values(c.Header); len(values) > 0 {
			switch v := values[0]; {
			case c.Value != "":
				if v == c.Value {
					return true
				}
			case c.Pattern != nil:
				if c.Pattern.MatchString(v) {
					return true
				}
			case v == "always":
				return true
			case v == "never":
				return false
			}
		}
	}
	if c.Cookie != "" {
		if cookie, err := r.Cookie(c.Cookie); err == nil {
			switch cookie.Value {
			case "always":
				return true
			case "never":
				return false
			}
		}
	}
	total := c.Total
	if total == 0 {
		total = 100
	}
	return c.Weight > 0 && random(total) < c.Weight
}
