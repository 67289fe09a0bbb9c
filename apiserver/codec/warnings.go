package codec

import (
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// maxWarning and maxWarnings are the maximum lengths of one warning and of all warnings of a response, in
	// characters (upstream: endpoints/filters' truncateAtTotalRunes and truncateItemRunes).
	maxWarning  = 256
	maxWarnings = 4096
)

// headerText returns text as one short line without control characters.
func headerText(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	for i, c := range runes {
		if unicode.IsControl(c) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), maxWarning)])
}

// AddWarning adds a warning to the header, unless it is there already, because a write may run again. It returns false
// if the maximum is reached.
func AddWarning(h http.Header, text string) bool {
	value, err := utilnet.NewWarningHeader(299, "-", headerText(text))
	warnings := h.Values("Warning")
	if err != nil || slices.Contains(warnings, value) {
		return true
	}
	total := utf8.RuneCountInString(value)
	for _, v := range warnings {
		total += utf8.RuneCountInString(v)
	}
	if total > maxWarnings {
		return false
	}
	h.Add("Warning", value)
	return true
}
