package request

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// FieldManager returns the field manager of a write: fieldManager in the query, or else the first word of the user
// agent (upstream: managerOrUserAgent).
func FieldManager(r *http.Request) (string, error) {
	manager := r.URL.Query().Get("fieldManager")
	if manager == "" {
		manager = firstWord(r.UserAgent())
	}
	return manager, ErrOptions(r, metavalidation.ValidateFieldManager(manager, field.NewPath("fieldManager")))
}

// firstWord returns the part before the first slash, truncated to the length of a manager's name.
func firstWord(agent string) string {
	word, _, _ := strings.Cut(agent, "/")
	var out strings.Builder
	for _, c := range word {
		if !unicode.IsPrint(c) {
			continue
		}
		if out.Len()+utf8.RuneLen(c) > metavalidation.FieldManagerMaxLength {
			break
		}
		out.WriteRune(c)
	}
	return out.String()
}
