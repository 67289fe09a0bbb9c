package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"monopod/store"
)

// entries are items of a list whose texts are difficult in YAML.
func entries(t *testing.T) []*store.Entry {
	t.Helper()
	texts := []string{
		"", "a", "1", "null", "~", "on", "- a", "a: b", "# a", "a\nb\n", "a\n\n\nb", "\na", " a\n  b\n", "a\n\n", "\n", " ",
		"\t", "a\tb\nc", "'", `"`, "{", "[a]", "|", "&a", "*a", "%", "@",
		"ü\u2028\u0085", "\x00\x1b", strings.Repeat("word ", 100), strings.Repeat("word\n ", 100) + "\n", "2026-01-02",
		"0x1f", "1e3", ".inf", "a #b", "---\n...",
	}
	out := make([]*store.Entry, 0, len(texts)+1)
	for i, text := range texts {
		data, err := json.Marshal(
			map[string]any{"metadata": map[string]any{"name": fmt.Sprint(i)}, "data": map[string]string{"k": text, text: "v"},
				"list": []any{text, []any{text}, map[string]any{}, 1.5, nil, true}})
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, store.NewEncoded(store.Key{}, 0, nil, data))
	}
	return append(out, store.NewEncoded(store.Key{}, 0, nil, deep(MaxDepth+1)),
		store.NewEncoded(store.Key{}, 0, nil, fmt.Appendf(nil, `{"a":[%s1]}`, strings.Repeat("1,", MaxValues))))
}

func deep(levels int) []byte {
	return []byte(strings.Repeat(`{"a":`, levels) + "1" + strings.Repeat("}", levels))
}

// A list has the same content in every layout, with items and without. The indented layout matches json.Indent byte for
// byte.
func TestLayoutsOfLists(t *testing.T) {
	t.Parallel()
	all := entries(t)
	for _, items := range [][]*store.Entry{nil, all[:1], all[:len(all)-2], all} {
		p := parts{
			head: []byte(`{"kind":"List","apiVersion":"v1","metadata":{"continue":"items\":[","resourceVersion":"7"},"items":[`),
			entries: func(yield func(*store.Entry, error) bool) {
				for _, e := range items {
					if !yield(e, nil) {
						return
					}
				}
			},
			encode: func(e *store.Entry) ([]byte, error) { return e.JSON(), nil },
		}
		var plain, pretty, text bytes.Buffer
		for l, out := range map[Layout]*bytes.Buffer{Compact: &plain, Pretty: &pretty, YAML: &text} {
			if err := p.write(out, l); err != nil {
				t.Fatal(err)
			}
		}
		var want, got any
		if err := json.Unmarshal(plain.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text.Bytes(), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d items, YAML: %v\n%.2000s", len(items), err, text.String())
		}
		var whole bytes.Buffer
		if err := json.Indent(&whole, bytes.TrimSpace(plain.Bytes()), "", "  "); err != nil {
			t.Fatal(err)
		}
		if len(items) < len(all) && !bytes.Equal(bytes.TrimSpace(pretty.Bytes()), whole.Bytes()) {
			t.Errorf("%d items, indented: %.2000s", len(items), pretty.String())
		}
	}
}

// A document that indentation would enlarge greatly is not indented.
func TestLayoutsAreBounded(t *testing.T) {
	t.Parallel()
	for _, l := range []Layout{Compact, Pretty, YAML} {
		for _, data := range [][]byte{deep(9000), []byte("[" + strings.Repeat("{},", 700_000) + "{}]"),
			[]byte(`"` + strings.Repeat(`[{\"`, 100_000) + `"`)} {
			out, err := l.Lay("", data)
			if err != nil || len(out) > len(data)+10 {
				t.Errorf("%d: %.20s: %d bytes of %d, %v", l, data, len(out), len(data), err)
			}
		}
	}
}
