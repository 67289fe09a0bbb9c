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

// warn adds warnings to h, without duplicates: a write may run again.
func warn(h http.Header, texts []string) {
	for _, text := range texts {
		if !AddWarning(h, text) {
			return
		}
	}
}

// headline returns text in the form of a header: short, printable, in one line.
func headline(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	for i, c := range runes {
		if unicode.IsControl(c) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), maxWarning)])
}

// AddWarning adds a warning to the header, without duplicates: a write may run again. It returns false if the
// maximum is reached.
func AddWarning(h http.Header, text string) bool {
	value, err := utilnet.NewWarningHeader(299, "-", headline(text))
	there := h.Values("Warning")
	if err != nil || slices.Contains(there, value) {
		return true
	}
	total := utf8.RuneCountInString(value)
	for _, v := range there {
		total += utf8.RuneCountInString(v)
	}
	if total > maxWarnings {
		return false
	}
	h.Add("Warning", value)
	return true
}
