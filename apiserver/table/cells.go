package table

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"monopod/store"
)

// Unknown is what a missing time prints as, None a missing name.
const (
	Unknown = "<unknown>"
	None    = "<none>"
)

// Text is a column of strings.
func Text[T store.Object](name, description string, cell func(T) string) Column {
	return column(name, "string", description, func(obj store.Object, _ time.Time) any { return cell(obj.(T)) })
}

// Number is a column of integers.
func Number[T store.Object](name, description string, cell func(T) int64) Column {
	return column(name, "integer", description, func(obj store.Object, _ time.Time) any { return cell(obj.(T)) })
}

// Count is a column of integers that upstream declares as strings.
func Count[T store.Object](name, description string, cell func(T) int) Column {
	return column(name, "string", description, func(obj store.Object, _ time.Time) any { return int64(cell(obj.(T))) })
}

// Timed is a column of strings that depend on the time of printing.
func Timed[T store.Object](name, description string, cell func(T, time.Time) string) Column {
	return column(name, "string", description, func(obj store.Object, now time.Time) any { return cell(obj.(T), now) })
}

// Name is the object's name, which kubectl -o name looks for by its format.
func Name() Column {
	c := Text("Name", "Unique within the namespace, or within the cluster for cluster-scoped kinds.", store.Object.GetName)
	c.Format = "name"
	return c
}

// Age is the time since creation.
func Age() Column {
	return Timed("Age", "Time since creation.", func(obj store.Object, now time.Time) string {
		return Since(obj.GetCreationTimestamp().Time, now)
	})
}

// CreatedAt is the time of creation, for kinds without columns of their own.
func CreatedAt() Column {
	return column("Created At", "date", "Time of creation.", func(obj store.Object, _ time.Time) any {
		return obj.GetCreationTimestamp().UTC().Format(time.RFC3339)
	})
}

// Wide returns the column as one that is shown with -o wide only.
func (c Column) Wide() Column {
	c.Priority = 1
	return c
}

// Since prints the time from then to now as kubectl does: "5s", "3d4h"; Unknown
// for the zero time.
func Since(then, now time.Time) string {
	if then.IsZero() {
		return Unknown
	}
	return duration.HumanDuration(now.Sub(then))
}

// OrNone is s, or "<none>" when it is empty.
func OrNone[S ~string](s S) string {
	if s == "" {
		return None
	}
	return string(s)
}

// OrUnknown is s, or "<unknown>" when it is empty.
func OrUnknown(s string) string {
	if s == "" {
		return Unknown
	}
	return s
}

// Ago adds to a count when the last of it was: "3 (5s ago)". A zero count or
// time prints the count alone.
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
