package bounded

import (
	"reflect"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckProtobufQuantities is CheckJSONQuantities for a protobuf message without its envelope.
func CheckProtobufQuantities(data []byte, obj any) error {
	if !SuspiciousQuantity(data) {
		return nil
	}
	return walkMessage(data, elem(reflect.TypeOf(obj)), nil)
}

// walkMessage finds the quantities in a message of type typ. It accepts invalid messages, because decoding returns the
// error.
func walkMessage(data []byte, typ reflect.Type, path *field.Path) error {
	for {
		got, rest, ok := NextField(data)
		if !ok {
			return nil
		}
		if got.Type == protowire.BytesType {
			if err := walkField(got.Value, int(got.Number), typ, path); err != nil {
				return err
			}
		}
		data = rest
	}
}

// walkField checks a field of a message by its number.
func walkField(data []byte, number int, typ reflect.Type, path *field.Path) error {
	if typ == quantityType {
		return tooLong(string(data), path)
	}
	if typ.Kind() != reflect.Struct {
		return nil
	}
	for f := range typ.Fields() {
		parts := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(parts) < 2 || parts[1] != strconv.Itoa(number) {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" {
			path = child(path, name)
		}
		return walkValue(data, f.Type, path)
	}
	return nil
}

// walkValue checks the value of a field: a message, one of several, or an entry of a map, which is a message of
// a key and a value.
func walkValue(data []byte, typ reflect.Type, path *field.Path) error {
	switch typ.Kind() {
	case reflect.Pointer:
		return walkValue(data, typ.Elem(), path)
	case reflect.Slice:
		return walkValue(data, typ.Elem(), path)
	case reflect.Struct:
		return walkMessage(data, typ, path)
	case reflect.Map:
		// The value of an entry has the number 2.
		entry := reflect.StructOf([]reflect.StructField{{
			Name: "Value", Type: typ.Elem(), Tag: `protobuf:"bytes,2,opt,name=value"`,
		}})
		return walkMessage(data, entry, path)
	}
	return nil
}
