package codec

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v2"
)

// Layout is the form in which JSON is sent: compact, indented, as YAML, or as CBOR. Each item of a list is converted by
// itself, so that only one item needs memory.
type Layout int

// The layouts.
const (
	Compact Layout = iota
	Pretty
	YAML
	CBOR
)

// ListTail ends a compact list.
const ListTail = "]}\n"

// Larger or deeper values are sent as compact JSON, which is also YAML. The YAML library needs some 300 bytes for each
// value, and the indentation of nested values grows with the square of their depth.
const (
	MaxValues = 20_000
	MaxDepth  = 100
)

// Lay converts one value, which is JSON, to the layout. Each line but the first begins with prefix.
func (l Layout) Lay(prefix string, data []byte) ([]byte, error) {
	if l == CBOR {
		out, err := FromJSON(data)
		return append(bytes.Clone(Prefix), out...), err
	}
	if l == Compact || !layable(data) {
		return data, nil
	}
	if l == Pretty {
		var out bytes.Buffer
		err := json.Indent(&out, data, prefix, "  ")
		return out.Bytes(), err
	}
	out, err := yamlOf(data)
	if prefix == "" || err != nil {
		return out, err
	}
	lines := bytes.SplitAfter(bytes.TrimSuffix(out, []byte("\n")), []byte("\n"))
	for i, line := range lines {
		if i > 0 && len(line) > 1 {
			lines[i] = append([]byte(prefix), line...)
		}
	}
	return bytes.Join(lines, nil), nil
}

// yamlOf converts JSON to YAML. It uses a JSON decoder, because some characters in JSON strings are not allowed in
// YAML.
func yamlOf(data []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	return yaml.Marshal(v)
}

// layable reports whether JSON has at most MaxValues values and MaxDepth levels.
func layable(data []byte) bool {
	values, depth, text := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth, values = depth+1, values+1
		case c == '}' || c == ']':
			depth--
		case c == ',' || c == ':':
			values++
		}
		if depth > MaxDepth || values > MaxValues {
			return false
		}
	}
	return true
}

// Item converts an item of a list.
func (l Layout) Item(data []byte) ([]byte, error) {
	if l == CBOR {
		return FromJSON(data)
	}
	return l.Lay(l.prefix(), data)
}

// Around returns the text before the items of a list, between them and after them, and the whole text of a list without
// items. head is JSON up to the bracket that begins the items, count the number of items.
func (l Layout) Around(head []byte, count int) (before, between, after, empty string, err error) {
	if l == Compact {
		return string(head), ",", ListTail, string(head) + ListTail, nil
	}
	if l == Pretty {
		none, err := l.Lay("", append(bytes.Clone(head), "]}"...))
		begin := string(bytes.TrimSuffix(none, []byte("]\n}")))
		return begin + "\n    ", ",\n    ", "\n  ]\n}", string(none), err
	}
	at := bytes.LastIndex(head, []byte(`,"`)) // the items are the last member
	list := string(bytes.Trim(head[at:], `,":[`))
	without := append(bytes.Clone(head[:at]), '}')
	if l == CBOR {
		rest, err := FromJSON(without)
		if err != nil {
			return "", "", "", "", err
		}
		all := string(Prefix) + string(WithList(rest, list, count))
		return all, "", "", all, nil
	}
	rest, err := l.Lay("", without)
	begin := string(rest) + list + ":"
	return begin + "\n- ", "\n- ", "\n", begin + " []\n", err
}

// prefix returns the prefix of the lines of an item.
func (l Layout) prefix() string {
	return [...]string{Compact: "", Pretty: "    ", YAML: "  ", CBOR: ""}[l]
}
