package bounded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A resource.Quantity such as "1e99999999" becomes a number with a hundred million digits when it is compared. So
// an object is checked before it is decoded: one quick pass finds whether its text contains such a number at all.
// Only then the object is walked by its Go type, to find whether the number is a Quantity and not, for example, a
// commit in a label.
const (
	// maxExponent is the maximum number of digits of an exponent: a Quantity is always below 1e19.
	maxExponent = 3
	// maxDigits is the maximum number of consecutive digits.
	maxDigits = 100
)

// CheckJSONQuantities returns an error if JSON contains a quantity that takes too long to parse. obj has the type that
// the JSON will be decoded into. It accepts invalid JSON, because decoding returns the error.
func CheckJSONQuantities(data []byte, obj any) error {
	if !SuspiciousQuantity(data) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil
	}
	return walk(value, reflect.TypeOf(obj), nil)
}

// SuspiciousQuantity reports whether data contains text like such a quantity. If so, CheckJSONQuantities decodes data
// without a type.
func SuspiciousQuantity(data []byte) bool {
	run := 0 // digits up to here
	for i, c := range data {
		if c-'0' <= 9 {
			run++
			continue
		}
		if run > maxExponent && (run > maxDigits || exponentBefore(data[:i-run])) {
			return true
		}
		run = 0
	}
	return run > maxDigits || run > maxExponent && exponentBefore(data[:len(data)-run])
}

// exponentBefore reports whether data ends with the start of an exponent: a digit or a point, an e, and
// optionally a sign. In JSON each can be an escape of six characters.
func exponentBefore(data []byte) bool {
	if bytes.IndexByte(data[max(0, len(data)-6):], '\\') >= 0 {
		return true
	}
	if n := len(data); n > 0 && (data[n-1] == '+' || data[n-1] == '-') {
		data = data[:n-1]
	}
	n := len(data)
	return n > 1 && data[n-1]|0x20 == 'e' && (data[n-2]-'0' <= 9 || data[n-2] == '.')
}

// tooLong returns an error if the text of a quantity takes too long to parse.
func tooLong(text string, path *field.Path) error {
	if !SuspiciousQuantity([]byte(text)) {
		return nil
	}
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return fmt.Errorf("%s: the quantity %q is out of range", path, text)
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// walk finds the quantities in value, which has the type typ.
func walk(value any, typ reflect.Type, path *field.Path) error {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ == quantityType {
		return tooLong(fmt.Sprint(value), path)
	}
	switch v := value.(type) {
	case map[string]any:
		return walkObject(v, typ, path)
	case []any:
		if typ.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range v {
			if err := walk(item, typ.Elem(), path.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func walkObject(v map[string]any, typ reflect.Type, path *field.Path) error {
	for name, item := range v {
		switch typ.Kind() {
		case reflect.Map:
			if err := walk(item, typ.Elem(), path.Key(name)); err != nil {
				return err
			}
		case reflect.Struct:
			if f, ok := fieldOf(typ, name); ok {
				if err := walk(item, f, child(path, name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func child(path *field.Path, name string) *field.Path {
	if path == nil {
		return field.NewPath(name)
	}
	return path.Child(name)
}

// fieldOf returns the type of a struct's field by its JSON name.
func fieldOf(typ reflect.Type, name string) (reflect.Type, bool) {
	for f := range typ.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case tag == name:
			return f.Type, true
		case f.Anonymous && tag == "":
			if inner, ok := fieldOf(elem(f.Type), name); ok {
				return inner, true
			}
		}
	}
	return nil, false
}

func elem(typ reflect.Type) reflect.Type {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem()
	}
	return typ
}
