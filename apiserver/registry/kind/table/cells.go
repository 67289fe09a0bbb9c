package table

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/store"
)

// Unknown is the cell of a missing time, None of a missing name, Unset of an optional field without a value.
const (
	Unknown = "<unknown>"
	None    = "<none>"
	Unset   = "<unset>"
)

// Text returns a column of strings.
func Text[T store.Object](name, description string, cell func(T) string) Column {
	return column(name, "string", description, func(obj store.Object, _ time.Time) any { return cell(obj.(T)) })
}

// Number returns a column of integers.
func Number[T store.Object](name, description string, cell func(T) int64) Column {
	return column(name, "integer", description, func(obj store.Object, _ time.Time) any { return cell(obj.(T)) })
}

// Count returns a column of integers that upstream declares as strings.
func Count[T store.Object](name, description string, cell func(T) int) Column {
	return column(name, "string", description, func(obj store.Object, _ time.Time) any { return int64(cell(obj.(T))) })
}

// Timed returns a column of strings that depend on the current time.
func Timed[T store.Object](name, description string, cell func(T, time.Time) string) Column {
	return column(name, "string", description, func(obj store.Object, now time.Time) any { return cell(obj.(T), now) })
}

// Name returns the column with the object's name, which kubectl -o name finds by its format.
func Name() Column {
	c := Text("Name", "Unique within the namespace, or within the cluster for cluster-scoped kinds.", store.Object.GetName)
	c.Format = "name"
	return c
}

// Age returns the column with the time since creation.
func Age() Column {
	return Timed("Age", "Time since creation.", func(obj store.Object, now time.Time) string {
		return Since(obj.GetCreationTimestamp().Time, now)
	})
}

// CreatedAt returns the column with the time of creation, for kinds without other columns.
func CreatedAt() Column {
	return column("Created At", "date", "Time of creation.", func(obj store.Object, _ time.Time) any {
		return obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
	})
}

// Wide returns the column for -o wide only.
func (c Column) Wide() Column {
	c.Priority = 1
	return c
}

// Since returns the time from then to now as kubectl prints it, such as "5s" or "3d4h"; Unknown for the zero time.
func Since(then, now time.Time) string {
	if then.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(then))
}

// OrNone returns s, or "<none>" if it is empty.
func OrNone[S ~string](s S) string {
	if s == "" {
		return None
	}
	return string(s)
}

// OrUnknown returns s, or "<unknown>" if it is empty.
func OrUnknown(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}

// OrUnset returns the value, or "<unset>" for nil.
func OrUnset[S ~string](value *S) string {
	if value == nil {
		return Unset
	}
	return string(*value)
}

// Ago returns a count with the time since the last occurrence, such as "3 (5s ago)"; only the count if it or the time
// is zero.
func Ago(count int, last, now time.Time) string {
	if count == 0 || last.IsZero() {
		return fmt.Sprint(count)
	}
	return fmt.Sprintf("%d (%s ago)", count, Since(last, now))
}

func column(name, kind, description string, cell func(store.Object, time.Time) any) Column {
	return Column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: kind, Description: description},
		Cell:                  cell,
	}
}
