package web

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Every text of the page is in the table of every language, with the same placeholders, and a table has no other texts.
// To run this test alone: go test web/text_test.go
func TestTextsAreTranslated(t *testing.T) {
	t.Parallel()
	texts := map[string]string{} // a file that has it, by text
	files, err := filepath.Glob("page/*.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasPrefix(filepath.Base(file), "text.") {
			for _, text := range tagged(read(t, file)) {
				texts[text] = file
			}
		}
	}
	for _, text := range static(t, read(t, "page/index.html")) {
		texts[text] = "page/index.html"
	}
	list := regexp.MustCompile(`LANGUAGES = (\[.*\]);`).FindStringSubmatch(read(t, "page/text.js"))
	var languages []string
	if list == nil || json.Unmarshal([]byte(list[1]), &languages) != nil {
		t.Fatal("text.js has no list of languages")
	}
	placeholder := regexp.MustCompile(`\{\d+\}`)
	for _, language := range languages {
		file := "page/text." + language + ".js"
		table, err := table(read(t, file))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		for text, in := range texts {
			if _, ok := table[text]; !ok {
				t.Errorf("%s misses a text of %s: %q", file, in, text)
			}
		}
		for text, translated := range table {
			want, got := placeholder.FindAllString(text, -1), placeholder.FindAllString(translated, -1)
			slices.Sort(got)
			if _, ok := texts[text]; !ok {
				t.Errorf("%s translates a text that the page does not have: %q", file, text)
			} else if !slices.Equal(got, want) || translated == "" {
				t.Errorf("%s: %q has the placeholders %v, want %v: %q", file, text, got, want, translated)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// tagged returns the keys of all templates t`…` of a module, also of those within others.
func tagged(source string) []string {
	var keys []string
	for _, at := range regexp.MustCompile("\\bt`").FindAllStringIndex(source, -1) {
		key, _ := template(source, at[1])
		keys = append(keys, key)
	}
	return keys
}

// template returns the template whose text begins at i, with {0}, {1} for its values, and where it ends.
func template(source string, i int) (string, int) {
	var text strings.Builder
	for n := 0; source[i] != '`'; {
		switch {
		case source[i] == '\\':
			text.WriteByte(source[i+1])
			i += 2
		case strings.HasPrefix(source[i:], "${"):
			fmt.Fprintf(&text, "{%d}", n)
			i = value(source, i+2)
			n++
		default:
			text.WriteByte(source[i])
			i++
		}
	}
	return text.String(), i + 1
}

// value returns where the value of a template ends that begins at i.
func value(source string, i int) int {
	for depth := 0; ; {
		switch source[i] {
		case '`':
			_, i = template(source, i+1)
			continue
		case '"':
			i += 1 + strings.IndexByte(source[i+1:], '"')
		case '{':
			depth++
		case '}':
			if depth == 0 {
				return i + 1
			}
			depth--
		}
		i++
	}
}

// static returns the texts of the HTML that text.js translates: those with words, except commands and the page's name.
func static(t *testing.T, html string) []string {
	t.Helper()
	var texts, within []string
	add := func(text string) {
		text = strings.Join(strings.Fields(text), " ")
		if text != "Monopod" && strings.ContainsFunc(text, unicode.IsLetter) {
			texts = append(texts, text)
		}
	}
	d := xml.NewDecoder(strings.NewReader(html))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			within = append(within, token.Name.Local)
			for _, a := range token.Attr {
				if slices.Contains([]string{"aria-label", "title", "placeholder"}, a.Name.Local) {
					add(a.Value)
				}
			}
		case xml.EndElement:
			within = within[:len(within)-1]
		case xml.CharData:
			if !slices.ContainsFunc(within, func(name string) bool {
				return slices.Contains([]string{"script", "noscript", "code"}, name)
			}) {
				add(string(token))
			}
		}
	}
}

// table reads the table of a language: export default, and an object as in JSON.
func table(source string) (map[string]string, error) {
	object, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSpace(source), ";"), "export default ")
	if !ok {
		return nil, errors.New("no export default")
	}
	texts, d := map[string]string{}, json.NewDecoder(strings.NewReader(object))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		text, _ := key.(string)
		if _, ok := texts[text]; ok {
			return nil, fmt.Errorf("%q is there twice", text)
		}
		var translated string
		if err := d.Decode(&translated); err != nil {
			return nil, fmt.Errorf("%q: %w", text, err)
		}
		texts[text] = translated
	}
	_, err := d.Token()
	return texts, err
}
