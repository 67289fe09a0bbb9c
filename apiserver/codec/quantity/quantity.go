// Package quantity keeps amounts away that take forever to read.
//
// A resource.Quantity such as "1e99999999" is a number of a hundred million
// digits as soon as anything compares it. So an object is looked at before it is
// decoded: whether its text holds such an amount at all, in one quick pass, and
// only then, by the object's Go type, whether that is the value of a Quantity
// and not, say, the name of a commit in a label.
package quantity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxExponent is how many digits the exponent of an amount may have: all that a
	// Quantity can hold lies below 1e19.
	maxExponent = 3
	// maxDigits is how many digits in a row it may have.
	maxDigits = 100
)

// CheckJSON refuses an object whose JSON has an amount that takes too long to
// read; obj is of the type it will be decoded into. JSON that is none passes:
// decoding it says what is wrong.
func CheckJSON(data []byte, obj any) error {
	if !Suspicious(data) {
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

// Suspicious says whether data has anything that looks like such an amount, so that
// CheckJSON decodes it without a type.
func Suspicious(data []byte) bool {
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

// exponentBefore says whether data ends like the beginning of an exponent: with a
// digit or a point, an e, and perhaps a sign. JSON may hide either behind an
// escape of six characters.
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

// tooLong refuses an amount by its text.
func tooLong(text string, path *field.Path) error {
	if !Suspicious([]byte(text)) {
		return nil
	}
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	return fmt.Errorf("%s: the quantity %q is out of range", path, text)
}

var quantityType = reflect.TypeFor[resource.Quantity]()

// walk finds the amounts in value, which will become a typ.
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

// fieldOf is the type of a struct's field by its name in JSON.
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
