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
	// maxWarning and maxWarnings bound one warning and all of an answer's, in
	// characters (upstream: endpoints/filters' truncateAtTotalRunes and
	// truncateItemRunes).
	maxWarning  = 256
	maxWarnings = 4096
)

// warn puts texts into h, each once: a write may run again.
func warn(h http.Header, texts []string) {
	for _, text := range texts {
		if !AddWarning(h, text) {
			return
		}
	}
}

// headline is text as a header can carry it: short, printable, in one line.
func headline(text string) string {
	runes := []rune(strings.ToValidUTF8(text, "\uFFFD"))
	for i, c := range runes {
		if unicode.IsControl(c) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), maxWarning)])
}

// AddWarning puts text beside the warnings there are, once: a write may run again.
// It is false when there is no room for more.
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
