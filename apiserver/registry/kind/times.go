package kind

import (
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CutTimes truncates the times in an object to the precision of JSON: seconds, and microseconds for a MicroTime. An
// object in memory then equals the one that is read after a restart. CutTimes does not write to times that already have
// this precision: a stored object may share them.
func CutTimes(obj Object) { cut(reflect.ValueOf(obj)) }

var (
	timeType      = reflect.TypeFor[metav1.Time]()
	microTimeType = reflect.TypeFor[metav1.MicroTime]()
)

func cut(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cut(v.Elem())
		}
	case reflect.Struct:
		switch at := v.Addr().Interface().(type) {
		case *metav1.Time:
			if at.Nanosecond() != 0 {
				at.Time = at.Truncate(time.Second)
			}
		case *metav1.MicroTime:
			if at.Nanosecond()%int(time.Microsecond) != 0 {
				at.Time = at.Truncate(time.Microsecond)
			}
		default:
			for _, i := range timeFields(v.Type()) {
				cut(v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			cut(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			old := v.MapIndex(key)
			value := reflect.New(old.Type()).Elem() // values of maps are not addressable
			value.Set(old)
			if cut(value); !reflect.DeepEqual(value.Interface(), old.Interface()) {
				v.SetMapIndex(key, value)
			}
		}
	}
}

// timesIn caches timeFields.
var timesIn sync.Map // reflect.Type: []int

// timeFields returns the indexes of the fields of a struct type that contain times.
func timeFields(t reflect.Type) []int {
	if known, ok := timesIn.Load(t); ok {
		return known.([]int)
	}
	var fields []int
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && reaches(f.Type, map[reflect.Type]bool{}) {
			fields = append(fields, i)
		}
	}
	timesIn.Store(t, fields)
	return fields
}

// reaches reports whether values of a type can contain times. It does not visit the types in seen.
func reaches(t reflect.Type, seen map[reflect.Type]bool) bool {
	switch {
	case t == timeType || t == microTimeType:
		return true
	case seen[t]:
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return reaches(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && reaches(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
